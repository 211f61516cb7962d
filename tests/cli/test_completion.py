"""`autocap completion`, asked what it completes in the shells that are here."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from autocap.cli import COMMANDS, WITH_A_JOB, main
from autocap.cli.completion import SHELLS, bash, fish, zsh
from autocap.cli.completion.syntax import Kind, commands
from autocap.metrics import METRICS

SCRIPTS = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}
# A line, and what it may be continued with; `None`: nothing of ours.
LINES: dict[str, set[str] | None] = {
    "autocap r": {"recur", "run", "report", "restore", "runs"},
    "autocap run --metr": {"--metric"},
    "autocap run --metric ": set(METRICS),
    "autocap run --metric=ed": {"ed2p", "edp", "eds"},
    "autocap run --metric eds --max-sl": {"--max-slowdown"},
    "autocap run --device emulated:tesla-v100/vg": {"emulated:tesla-v100/vgg19"},
    "autocap run --progress s": {"steps", "speed"},
    "autocap attach --progress s": {"speed"},
    "autocap attach -- --m": None,
    "autocap run -- --m": None,
    "autocap run --k 2 train --metr": None,
    "autocap run --k 2 -- train --metr": None,
    "autocap run --k 2 -- trai": {"training-program"},
    "autocap sweep trai": {"training-program"},
    "autocap sweep --order d": {"descending"},
    "autocap sweep training-program train": {"train.py"},
    "autocap report ": {"autocap-runs/one"},
    "autocap report autocap-runs/one --js": {"--json"},
    "autocap run --warm-start autocap": {"autocap-runs/one"},
    "autocap period tr": {"train.py"},
    "autocap help sw": {"sweep"},
    "autocap budget s": {"set", "status"},
    "autocap budget --policy f": {"fair"},
    "autocap recur st": {"status"},
    "autocap recur --metric ": set(METRICS),
    "autocap config s": {"sweep"},
    "autocap completion f": {"fish"},
}
BASH = r"""
COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
source /dev/stdin
while IFS= read -r COMP_LINE; do
    COMP_POINT=${#COMP_LINE} COMPREPLY=()
    _autocap autocap
    echo "> ${COMPREPLY[*]}"
done < lines
"""
FISH = r"""
source -
while read -l line
    echo '>' (complete -C "$line" | string split -f 1 \t)
end < lines
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a run, a script, and a program; lines to complete."""
    (tmp_path / "autocap-runs" / "one").mkdir(parents=True)
    (tmp_path / "autocap-runs" / "one" / "events.jsonl").touch()
    (tmp_path / "train.py").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "training-program").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "training-program").chmod(0o755)
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in LINES))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answers(argv: Sequence[str], shell: str) -> dict[str, set[str]]:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    done = subprocess.run(argv, input=SCRIPTS[shell](commands()), capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    said = [line.removeprefix(">").split() for line in done.stdout.splitlines()]
    return {line: set(words) for line, words in zip(LINES, said, strict=True)}


def ours(words: set[str]) -> set[str]:
    return {word for word in words if word.startswith("--")}


def test_bash_completes_what_can_stand_there(folder: Path) -> None:
    found = answers(["bash", "--noprofile", "--norc", "-c", BASH], "bash")
    expected = LINES | {"autocap run --device emulated:tesla-v100/vg": {"tesla-v100/vgg19"}}  # it keeps what is before
    assert found == {line: words or set() for line, words in expected.items()}


def test_fish_completes_what_can_stand_there(folder: Path) -> None:
    found = answers(["fish", "--no-config", "-c", FISH], "fish")
    for line, words in LINES.items():
        if words is None:
            assert ours(found[line]) == set(), line
        else:
            assert words <= {word.removeprefix("--metric=").rstrip("/") for word in found[line]}, line


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_one_that_its_shell_can_read(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert script.rstrip("\n") == SCRIPTS[shell](commands()).rstrip("\n")
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    done = subprocess.run([shell, "-n", "/dev/stdin"], input=script, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_and_option_of_the_help_is_there() -> None:
    found = {command.name: command for command in commands()}
    assert list(found) == list(COMMANDS)
    assert {name for name, command in found.items() if command.has_job} == set(WITH_A_JOB)
    flags = {flag: option for option in found["run"].options for flag in option.flags}
    assert {"--metric", "--no-config", "-v", "--verbose", "--help", "-h", "--out"} <= flags.keys()
    assert flags["--strategy-option"].repeated
    assert flags["--observe"].value is None
    kinds = {flag: option.value.kind for flag, option in flags.items() if option.value is not None}
    assert (kinds["--out"], kinds["--warm-start"], kinds["--k"]) == (Kind.DIRECTORIES, Kind.RUNS, Kind.ANYTHING)
    for name, script in SCRIPTS.items():
        text = script(list(found.values()))
        for flag in flags:
            assert flag.removeprefix("--") in text, f"{name}: {flag}"
