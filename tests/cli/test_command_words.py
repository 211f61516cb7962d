"""Where a job's command begins, what help says, and what is said of words that are not known; `autocap completion`, and
what a shell that completes is answered."""

import io
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import argcomplete
import pytest

from autocap import cli
from autocap.cli import WITH_A_JOB, commands, completion, main, parser_of, settings
from autocap.cli import split_words as split
from autocap.errors import UsageError
from autocap.metrics import METRICS
from tests.cli.test_cli import Cli, Here, require_refused
from tests.doubles.recorded import record


def halves(command: str, line: str) -> tuple[list[str], list[str] | None]:
    return split(shlex.split(line), parser_of(command)[1])


@pytest.mark.parametrize(
    ("line", "ours", "command"),
    [
        ("python x.py", 0, "python x.py"),
        ("--metric eds python train.py --epochs 3", 2, "python train.py --epochs 3"),
        ("--metric=eds python train.py --metric energy --json", 1, "python train.py --metric energy --json"),
        ("--gpus 0 train.sh", 2, "train.sh"),
        ("--json --quiet -v ./train.sh -v", 3, "./train.sh -v"),
        ("-vv x", 1, "x"),
        ("--k -5 x", 2, "x"),
        ("--observe - x", 1, "- x"),
        ("--caps '100, 200' x --help", 2, "x --help"),
        ("--strategy-option a=1 --strategy-option b=2 x", 4, "x"),
        ("", 0, None),
        ("--json", 1, None),
    ],
)
@pytest.mark.parametrize("name", ["run", "sweep"])
def test_the_first_word_that_is_no_option_and_no_value_begins_the_command(name, line, ours, command) -> None:
    if name == "sweep" and "strategy" in line:
        line = line.replace("strategy-option", "kill-after")
    words = shlex.split(line)
    assert halves(name, line) == (words[:ours], None if command is None else words[ours:])


@pytest.mark.parametrize(
    ("line", "ours", "command"),
    [
        ("-- python x.py", [], ["python", "x.py"]),
        ("--json -- python x.py -- --json", ["--json"], ["python", "x.py", "--", "--json"]),
        ("--", [], []),
        ("--gpus 0 -- -x", ["--gpus", "0"], ["-x"]),
        ("--metric -- true", ["--metric"], ["true"]),
        ("--metric=-- true", ["--metric=--"], ["true"]),
    ],
)
def test_two_dashes_begin_it_as_ever(line: str, ours: list[str], command: list[str]) -> None:
    assert halves("run", line) == (ours, command)


@pytest.mark.parametrize("line", ["--observ python x.py", "--nosuch 3 -- true", "-x true", "-5 true", "--nosuch=1 x"])
def test_an_option_that_is_not_known_is_refused_and_begins_no_command(line, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", *shlex.split(line)]) == 2
    assert capsys.readouterr().err.startswith(f"autocap: unrecognized arguments: {line.split()[0]} (")
    assert list(tmp_path.iterdir()) == []


def test_a_word_before_two_dashes_is_refused_with_the_line_to_type() -> None:
    with pytest.raises(UsageError) as refused:
        halves("run", "--gpus 0 1 -- python 'my script.py'")
    assert str(refused.value) == (
        "where the command begins is not clear, as '1' stands before `--` and is no option; if it begins there, write "
        "`autocap run --gpus 0 -- 1 -- python 'my script.py'`"
    )
    with pytest.raises(UsageError, match="write `autocap sweep \\[options\\] -- CMD …`"):
        halves("sweep", f"x {'y' * 500} --")


@pytest.mark.slow
def test_a_command_without_two_dashes_is_run_and_its_options_are_its_own(here: Here) -> None:
    done = here("run", "--device", "emulated", "--quiet", "echo", "--metric", "foo", "-v")
    assert (done.returncode, done.stdout, done.stderr) == (0, "--metric foo -v\n", "")


def test_commands_that_start_no_job_take_none(cli: Cli, here: Here) -> None:
    assert set(WITH_A_JOB) == {"run", "sweep"}
    done = here("attach", "--pid", "1", "python", "x.py")
    require_refused(cli, done, 2, "argument PID: 'python' is no process number")
    require_refused(cli, here("attach", "1", "x.py"), 2, "unrecognized arguments: x.py (see")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rum true", "unknown command 'rum' (did you mean run?); choose one of run, attach, "),
        ("reprot", "unknown command 'reprot' (did you mean report?); choose one of "),
        ("help divices", "unknown command 'divices' (did you mean devices?); choose one of "),
        ("run --metrc eds true", "unrecognized arguments: --metrc (did you mean --metric?) (see `autocap run --help`)"),
        ("devices --jsn", "unrecognized arguments: --jsn (did you mean --json?) (see `autocap devices --help`)"),
        ("run --metric engy true", "unknown metric 'engy' (did you mean energy?); choose one of energy, edp"),
        ("run --strategy goldn true", "unknown strategy 'goldn' (did you mean golden?); choose one of model"),
        ("run --device emulatd true", "unknown device 'emulatd' (did you mean emulated?); choose one of auto"),
        ("run --device emulatd:x true", "unknown device 'emulatd:x' (did you mean emulated?); choose one of auto"),
        ("run --device emulated:tesla-v100/vgg1 true",
         "unknown profile 'tesla-v100/vgg1' (did you mean tesla-v100/vgg19?); choose one of "),
        ("run --progress perid true", "unknown progress 'perid' (did you mean period?); choose auto, steps"),
        ("run --progress cals:a:b true", "unknown progress 'cals:a:b' (did you mean calls?); choose auto, steps"),
        ("attach --pid 1 --progress calls:a", "progress 'calls:a' names no function; give calls:LIBRARY:SYMBOL, such"),
        ("run --progress regx:a true", "unknown progress 'regx:a' (did you mean regex?); choose auto, steps"),
        ("attach --pid 1 --progress perid", "unknown progress 'perid' (did you mean period?); choose auto, calls"),
        ("run --strategy golden --strategy-option tolerence=1 true",
         "unknown strategy option 'tolerence' (did you mean tolerance?); this strategy's options: "),
        ("run --actuator helper true", "--actuator is called --via now; give that instead (see `autocap run --help`)"),
        ("attach --pid 1 --actuator=helper", "--actuator is called --via now; give that instead"),
        ("run --via helpr true", "argument --via: unknown way to set limits 'helpr' (did you mean helper?); "),
        ("run --via dcgm true", "argument --via: dcgm cannot put back what it found: "),
        ("run --node-power rapel true", "argument --node-power: unknown source 'rapel' (did you mean rapl?); choose"),
    ],
)  # fmt: skip
def test_what_was_probably_meant_is_said(line, said, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)) == 2
    assert capsys.readouterr().err.startswith(f"autocap: {said}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [one for one in settings.commands() if settings.of_a_job(one)])
def test_the_short_help_shows_what_most_people_need_and_all_of_it_the_rest(command, capsys) -> None:
    shown = []
    for words in ([command, "--help"], [command, "--help", "all"]):
        assert main(words) == 0
        shown.append(capsys.readouterr().out)
    few, every = ({line.split()[0] for line in text.splitlines() if line.startswith("  -")} for text in shown)
    assert len(few) <= 17
    assert few < every
    assert "--caps" in every - few
    assert f"`autocap {command} --help all` shows " in shown[0]
    assert "--help all` shows" not in shown[1]
    assert main(["help", command, "all"]) == 0
    assert capsys.readouterr().out == shown[1]


def test_the_options_of_one_letter_are_those_that_they_stand_for() -> None:
    parser = parser_of("run")[1]
    args = parser.parse_args(["-m", "energy", "-o", "there", "-q"])
    assert (args.metric, str(args.out), args.quiet) == ("energy", "there", True)


def test_pages_and_pictures_are_asked_for_alike_in_all_commands() -> None:
    found = {name: parser_of(name)[1]._option_string_actions for name in commands()}
    having = {name for name, options in found.items() if {"--html", "--plots"} & options.keys()}
    assert having >= {"report", "period", "config"}
    for name in having - {"config"}:
        assert all(found[name][flag].nargs == 0 for flag in ("--html", "--plots") if flag in found[name]), name
        assert "--out" in found[name], name


def test_attach_takes_a_number_for_the_process(cli: Cli, here: Here) -> None:
    for words in (["attach", "999999999"], ["attach", "--pid", "999999999"]):
        require_refused(cli, here(*words, "--device", "emulated"), 1, "999999999")
    require_refused(cli, here("attach", "1", "--pid", "2"), 2, "the job is given twice, as 1 and by --pid 2; drop one")


@pytest.mark.parametrize(
    ("words", "same"), [(["help"], ["--help"])] + [(["help", n], [n, "--help"]) for n in commands()]
)
def test_help_is_a_command(words: list[str], same: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert main(same) == 0
    assert shown == capsys.readouterr().out != ""


def in_ascii(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    """A command on streams that take ASCII alone, as with LC_ALL=C, PYTHONUTF8=0 and PYTHONIOENCODING=ascii."""
    taken = io.BytesIO(), io.BytesIO()
    for name, stream in zip(("stdout", "stderr"), taken, strict=True):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(stream, encoding="ascii"))
    status = main(words)
    sys.stdout.flush()
    sys.stderr.flush()
    out, err = (stream.getvalue().decode("ascii") for stream in taken)
    return status, out, err


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("runs") / "run")


@pytest.mark.parametrize("words", [["--help"], ["help"], *([name, "--help"] for name in commands())])
def test_help_is_readable_where_the_terminal_knows_ascii_alone(words, monkeypatch) -> None:
    status, out, err = in_ascii(words, monkeypatch)
    assert (status, err) == (0, "")
    assert out.startswith("usage: autocap")
    assert "\\u" not in out
    assert "\\x" not in out


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["report", "RUN"], ["report", "RUN", "--json"], ["report", "RUN", "RUN"], ["runs", "RUNS"]]
)
def test_so_are_reports(words: list[str], recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"RUN": str(recorded), "RUNS": str(recorded.parent)}
    status, out, err = in_ascii([places.get(word, word) for word in words], monkeypatch)
    assert (status, err) == (0, "")
    assert "+/-" in out or "--json" in words
    assert "\\xb1" not in out


def test_an_error_with_such_characters_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = in_ascii(["run", "--gpus", "٣", "true"], monkeypatch)
    assert (status, out) == (2, "")
    assert err.startswith("autocap: argument --gpus: '\\u0663' is no GPU; ")
    said = "autocap: a command is missing; write `autocap run [options] -- CMD ...`\n"
    assert in_ascii(["run"], monkeypatch)[2] == said


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


@pytest.mark.slow
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
