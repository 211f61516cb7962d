"""A wheel holds only `autocap/`, reads right on the page of an index, and works where a `strategies/` of somebody
else's lies about."""

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(*words: str | Path, cwd: Path) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git tracks."""
    source = tmp_path_factory.mktemp("source") / "source"
    tracked = run("git", "ls-files", "-z", cwd=ROOT).split("\0")[:-1]
    for name in tracked:
        if not (ROOT / name).exists() and not (ROOT / name).is_symlink():
            continue  # deleted and not yet committed
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            (source / name).symlink_to(os.readlink(ROOT / name))
        else:
            (source / name).write_bytes((ROOT / name).read_bytes())
    return source


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without a network, from a source distribution, as an index would have it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = f"from setuptools.build_meta import build_sdist; build_sdist({str(folder)!r})"
    run(sys.executable, "-c", build, cwd=source)
    (packed,) = folder.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        assert not [name for name in archive.getnames() if "test_" in name], "some tests, which do not work alone"
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-build-isolation", "--no-deps")
    run(*pip, "--wheel-dir", folder, packed, cwd=folder)
    return next(folder.glob("*.whl"))


@pytest.mark.slow
def test_a_wheel_holds_only_autocap_and_all_that_it_needs(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"autocap"}
    assert not [name for name in names if not name.startswith(("autocap/", "autocap-"))]
    for needed in (
        "autocap/py.typed",
        "autocap/progress/steps/hook/sitecustomize.py",
        "autocap/devices/model/krzywaniak2022.json",
        "autocap/reports/report.css",
        "autocap/strategies/golden.py",
        "autocap/workloads/models/resnet.py",
        "autocap/limits/watchdog.py",
        "autocap/testing/strategies.py",
    ):
        assert needed in names
    sources = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "autocap").rglob("*.py")
        if not {"strategies", "workloads"} & set(path.relative_to(ROOT / "autocap").parts[:1])
    }
    assert sources <= set(names)
    assert {f"autocap/cli/docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= set(names)


def test_the_page_of_an_index_has_the_readme_with_links_that_lead_somewhere(wheel: Path) -> None:
    source = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
    metadata = email.message_from_string(archive.read(name).decode())
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["Author"]
    versions = [one.rpartition(" ")[2] for one in metadata.get_all("Classifier") if "Python :: 3." in one]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    described = str(metadata.get_payload())
    assert described.splitlines()[0] == "# autocap"
    links = re.findall(r"(!?)\[(?:[^][]|\[[^]]*\])*\]\(([^)]+)\)|<[^>]*(?:src|href)=\"([^\"]+)\"", described)
    assert len(links) > 10
    assert any(picture for picture, _, _ in links)
    for picture, markdown, html in links:
        link = markdown or html
        assert link.startswith("https://"), f"{link} leads nowhere on the page of an index"
        kind, _, path = link.removeprefix(f"{source}/").partition("/main/")
        if link.startswith(source):
            assert kind == ("raw" if picture else "blob")
            assert (ROOT / path.partition("#")[0]).is_file(), f"{link}: there is no such file"
    urls = dict(one.split(", ") for one in metadata.get_all("Project-URL"))
    assert set(urls) == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}
    assert all(url.startswith(source) for url in urls.values())
    for named in (urls["Documentation"], urls["Changelog"]):
        assert (ROOT / named.partition("/main/")[2]).exists()


@pytest.mark.slow
def test_an_installed_wheel_runs_beside_a_strategies_folder_of_somebody_elses(wheel: Path, tmp_path: Path) -> None:
    for name in ("strategies", "workloads"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('not ours')")
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile")
    run(*pip, "--no-deps", "--no-index", wheel, cwd=tmp_path)
    assert "Finds the best power cap" in run(tmp_path / "env" / "bin" / "autocap", "--help", cwd=tmp_path)
    said = "# No cap was kept"
    assert run(tmp_path / "env" / "bin" / "autocap", "help", "no-cap-kept", cwd=tmp_path).startswith(said)
    assert "--max-slowdown" in run(python, "-m", "autocap", "run", "--help", cwd=tmp_path)
    assert "resnet18" in run(python, "-m", "autocap.workloads", "train", "--help", cwd=tmp_path)
    where = run(python, "-c", "import autocap; autocap.step(); print(autocap.__file__)", cwd=tmp_path)
    assert where.startswith(str(tmp_path / "env"))
