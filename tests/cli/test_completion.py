"""`autocap completion`, and what a shell that completes is answered."""

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import argcomplete
import pytest

from autocap import cli
from autocap.cli import commands, completion, main
from autocap.metrics import METRICS

# A line, and what it may be continued with, of ours alone.
LINES: dict[str, set[str]] = {
    "autocap ": set(commands()),
    "autocap re": {name for name in commands() if name.startswith("re")},
    "autocap --": {"--help", "--version"},
    "sudo autocap run --metr": {"--metric"},
    "autocap nonsense --": set(),
    "autocap run --metric ": set(METRICS),
    "autocap run --metric=ed": {"ed2p", "edp", "eds"},
    "autocap run --metric eds --max-sl": {"--max-slowdown"},
    "autocap run --device emulated:tesla-v100/vg": {"tesla-v100/vgg19"},  # bash keeps what is before
    "autocap run --k ": set(),
    "autocap run --strategy go": {"golden"},
    "autocap run --progress s": {"steps", "speed"},
    "autocap attach --progress s": {"speed"},
    "autocap attach -- --m": set(),
    "autocap run -- --m": set(),
    "autocap run --k 2 train --metr": set(),
    "autocap run --k 2 -- train --metr": set(),
    "autocap run --k 2 -- trai": {"training-program"},
    "autocap sweep trai": {"training-program"},
    "autocap sweep training-program trai": {"train.py"},
    "autocap run -- ./trai": {"./train.py"},
    "autocap sweep --order d": {"descending"},
    "autocap report ": {"autocap-runs/one"},
    "autocap report autocap-runs/one --js": {"--json"},
    "autocap run --warm-start autocap": {"autocap-runs/one"},
    "autocap run --out autocap": {"autocap-runs/"},
    "autocap period tr": {"train.py"},
    "autocap help sw": {"sweep"},
    "autocap config s": {"sweep"},
    "autocap completion f": {"fish"},
}
BASH = r"""
source /dev/stdin
COMP_LINE='autocap run --metric=ed' COMP_POINT=23
_python_argcomplete autocap
echo "${COMPREPLY[*]}"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a run, a script, and a program."""
    (tmp_path / "autocap-runs" / "one").mkdir(parents=True)
    (tmp_path / "autocap-runs" / "one" / "events.jsonl").touch()
    (tmp_path / "train.py").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "training-program").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], set[str]]:
    """What a line may be continued with."""
    # It would write to descriptor 9, which may be pytest's.
    monkeypatch.setattr(argcomplete.CompletionFinder, "_init_debug_stream", lambda self: None)
    monkeypatch.setenv("_ARGCOMPLETE_SHELL", "bash")
    monkeypatch.setenv("_ARGCOMPLETE_COMP_WORDBREAKS", " \t\n\"'><=;|&(:")

    def of(line: str) -> set[str]:
        monkeypatch.setenv("_ARGCOMPLETE", "1")
        monkeypatch.setenv("COMP_LINE", line)
        monkeypatch.setenv("COMP_POINT", str(len(line)))
        to, left = io.StringIO(), list[int]()
        completion.answer(to, left.append)
        assert left == [0]
        return {word.rstrip(" ") for word in to.getvalue().split("\v") if word}

    return of


def test_a_line_goes_on_with_what_can_stand_there(asked: Callable[[str], set[str]]) -> None:
    assert {line: asked(line) for line in LINES} == LINES
    for line in ("autocap run ", "autocap run -"):  # where the job's command may begin as well
        assert {"--metric", "--out", "--help"} <= asked(line)


def test_root_answers_nobody_who_may_have_named_the_file_to_answer_into(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_ARGCOMPLETE", "COMP_POINT", "SUDO_UID"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("COMP_LINE", "autocap ")
    monkeypatch.setattr(cli, "answer", lambda: pytest.fail("answered"))
    monkeypatch.setattr("sys.argv", ["autocap", "--version"])
    with pytest.raises(SystemExit, match="0"):
        cli.entry()


def test_bash_asks_the_command_itself_by_the_script_that_is_printed(folder, capsys) -> None:
    assert main(["completion", "bash"]) == 0
    (folder / "bin" / "autocap").symlink_to(Path(sys.executable).parent / "autocap")
    argv = ["bash", "--noprofile", "--norc", "-c", BASH]
    done = subprocess.run(argv, input=capsys.readouterr().out, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr, set(done.stdout.split())) == (0, "", {"edp", "ed2p", "eds"})


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_have_a_script_as_well(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_ARGCOMPLETE_SHELL" in capsys.readouterr().out
