"""The image: its Containerfile copies what there is and installs what is declared, and its page runs it with the rights
and the volumes that autocap needs. No engine is asked."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from autocap.limits import state_dir
from tests.docs.pages import ALL_BLOCKS

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Extras that nobody needs to tune a job; of Ray it has to be the version of the cluster.
NOT_NEEDED = {"docs", "dev", "entsoe", "frameworks", "ray", "testing", "workloads"}
TRACKERS = {"wandb", "mlflow", "tensorboard"}  # large, and of use to few: a layer of the user's own
STEPS = [
    (line.partition(" ")[0], line.partition(" ")[2])
    for line in (ROOT / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    if line and not line.startswith("#")
]
RUNS = [
    shlex.split(line)
    for block in ALL_BLOCKS
    if block.page == "docs/container.md" and block.language == ""
    for line in block.text.replace("\\\n", " ").splitlines()
    if line.startswith("docker run")
]
assert len(RUNS) > 5, "the page tunes, restores and reports"


def of(instruction: str) -> list[str]:
    return [words for name, words in STEPS if name == instruction]


def copied() -> dict[str, str]:
    """Where each path of the repository is in the image."""
    places = {}
    for words in of("COPY"):
        *sources, target = words.split()
        for source in sources:
            places[source] = f"{target}{source}" if target.endswith("/") else target
    return places


def test_every_instruction_is_known_and_in_order() -> None:
    names = [name for name, _ in STEPS]
    assert set(names) <= {"FROM", "COPY", "RUN", "ENV", "WORKDIR", "ENTRYPOINT", "CMD"}
    assert names[0] == "FROM"
    assert max(place for place, name in enumerate(names) if name == "COPY") < names.index("RUN")


def test_what_it_copies_is_there_and_is_all_that_a_build_needs() -> None:
    places = copied()
    for source, target in places.items():
        assert (ROOT / source).exists(), f"{source} is not in the repository"
        assert target == f"/src/{source}"
    needed = {"pyproject.toml", "setup.py", "README.md", *PROJECT["project"]["license-files"]}
    needed |= set(PROJECT["tool"]["setuptools"]["package-dir"].values())
    assert set(places) == needed


def test_it_installs_autocap_with_the_extras_of_a_run() -> None:
    (installs,) = [words for words in of("RUN") if "pip install" in words]
    (target,) = [word for word in shlex.split(installs) if word.startswith("/src[")]
    found = re.fullmatch(r"/src\[([\w,]+)\]", target)
    assert set(found[1].split(",")) == set(PROJECT["project"]["optional-dependencies"]) - NOT_NEEDED - TRACKERS


def test_its_python_is_one_that_autocap_takes() -> None:
    (image,) = of("FROM")
    version = re.fullmatch(r"docker\.io/library/python:(\d+)\.(\d+)-slim", image)
    oldest = re.fullmatch(r">=(\d+)\.(\d+)", PROJECT["project"]["requires-python"])
    assert tuple(map(int, version.groups())) >= tuple(map(int, oldest.groups()))


def test_it_starts_the_command_and_has_the_drivers_library() -> None:
    (entry,) = of("ENTRYPOINT")
    assert json.loads(entry) == list(PROJECT["project"]["scripts"])
    assert json.loads(of("CMD")[0]) == ["--help"]
    (variables,) = of("ENV")
    assert "NVIDIA_DRIVER_CAPABILITIES=utility" in variables.split()


@pytest.mark.parametrize("words", RUNS, ids=lambda words: " ".join(words[2:])[-60:])
def test_the_page_gives_each_container_what_it_needs(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOCAP_STATE_DIR", raising=False)
    monkeypatch.setattr(state_dir.os, "geteuid", lambda: 0)
    place = state_dir.default_path()
    commands = ("attach", "devices", "doctor", "report", "restore", "run", "runs")
    command = next(word for word in reversed(words) if word in commands)
    volumes = [words[at + 1] for at, word in enumerate(words) if word == "-v"]
    sets = command in ("attach", "restore", "run")
    assert (f"{place}:{place}" in volumes) == sets, "the journal outlives the container"
    assert ("SYS_ADMIN" in words) == sets, "the right to set a limit, and to nobody else"
    assert ("--gpus" in words) == (sets or command in ("devices", "doctor"))
    assert "--privileged" not in words
    if command in ("attach", "report", "runs"):
        assert f"autocap-runs:{of('WORKDIR')[0]}" in volumes
    if command in ("attach", "restore"):
        assert words[words.index("--pid") + 1] == "host"
