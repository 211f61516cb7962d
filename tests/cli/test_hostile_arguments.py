"""Whatever is typed: one sentence with what is allowed, at once, and nothing taken silently for something else."""

import argparse
import math
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autocap.cli import parser_of
from autocap.config import values
from autocap.errors import UsageError
from tests.cli.test_cli import Cli, Here, require_refused
from tests.doubles.waiting import eventually


def options() -> Iterator[tuple[str, argparse.Action]]:
    for command in ("run", "attach", "inside", "sweep", "report", "period"):
        for action in parser_of(command)[1]._actions:
            if action.option_strings and action.nargs != 0 and action.dest != "help":
                yield command, action


OPTIONS = list(options())
NAMES = [f"{command} {option.option_strings[-1]}" for command, option in OPTIONS]
# Commands share most options, and what reads them.
READERS = {(option.option_strings[-1], option.type): option.type for _, option in OPTIONS}


@pytest.mark.parametrize(("command", "option"), OPTIONS, ids=NAMES)
def test_two_dashes_are_no_value_of_any_option(command: str, option: argparse.Action) -> None:
    flag = option.option_strings[-1]
    with pytest.raises(UsageError, match=f"argument {flag}: '--' is no value; give one, or leave the option out"):
        parser_of(command)[1].parse_args([f"{flag}=--"])


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS.values(), ids=[flag for flag, _ in READERS])
@given(text=st.text(max_size=20) | st.text("0123456789-,;:%.eE+_GPU =١²\0\n\x1b", max_size=12))
@example(text="")
@example(text="9" * 5000)
@example(text="a" * 5000)
@example(text="1e308")
@example(text="5e-324")
@example(text="inf")
@example(text="1_000")
@example(text="\0")
@example(text="\ud800")
@example(text="0-999999999999")
@example(text="nan")
@example(text="²")
def test_any_value_of_any_option_is_read_or_refused_in_a_short_sentence(reader, text) -> None:
    assert callable(reader)
    refused = ""
    try:
        read = reader(text)
    except argparse.ArgumentTypeError as error:
        refused = str(error)
    else:
        assert read is not None
        assert not isinstance(read, float) or math.isfinite(read)
    assert len(refused) < 400


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--cap-step", "5e-324"], "argument --cap-step: 4.94066e-324 is out of range; give a number above 0, "
         "in watts: 0.001 to 1000000"),
        (["run", "--min-cap", "1e308"], "argument --min-cap: 1e+308 is out of range; give a number above 0, in watts"),
        (["run", "--min-cap=100", "--max-cap=260", "--cap-step=0.001"], "a step of 0.001 W makes 1.6e+05 caps between "
         "100 and 260 W, and at most 2000 can be searched; pass --cap-step 0.081 or more"),
        (["run", "--caps", ",".join(["100"] * 2001)], "argument --caps: these are 2001 caps; give at most 2000"),
        (["run", "--gpus", "0-99999999"], "argument --gpus: '0-99999999' is no GPU; give indices, ranges like 0-3 or "),
        (["run", "--gpus", "0-9999"], "argument --gpus: '0-9999' names more than 1024 GPUs; give at most so many"),
        (["run", "--gpus", "٣"], "argument --gpus: '٣' is no GPU"),
        (["sweep", "--gpus", ";".join("0" * 65)], "argument --gpus: these are 65 sets of GPUs; give at most 64"),
        (["sweep", "--repeats", "1001"], "argument --repeats: '1001' is not a whole number above 0, at most 1000"),
        (["sweep", "--seed", "9" * 30], "is not a whole number, 0 or more, at most 4294967295"),
        (["run", "--iterations", "9" * 5000], "(5000 characters) is not a whole number above 0, at most 1000000000000"),
        (["run", "--trial-seconds", "1e9"], "give a number above 0, in seconds: 0.001 to 100000000"),
        (["run", "--wait", "1_000"], "argument --wait: '1_000' is not a number; give a number above 0, in seconds"),
        (["run", "--wait", " 5 "], "argument --wait: ' 5 ' is not a number"),
        (["run", "--retune", "1e99"], "1e+99 is out of range; give a number above 0, in seconds, or auto, or never"),
        (["run", "--kill-after", "1e-300"], "is out of range; give 0 or more, in seconds: 0, or 0.001 to 100000000"),
        (["run", "--k", "1e300"], "argument --k: 1e+300 is out of range; give a finite number, at most 1000000000"),
        (["run", "--max-slowdown", "1e300%"], "is out of range; give a percentage above 0, such as 5 or 5%: 1e-06 to"),
        (["run", "--energy-price", "1e-99"], "is out of range; give 0 or more, in money per kWh: 0, or 1e-09 to"),
        (["run", "--carbon", "1e99"], "is out of range; give 0 or more, in grams of CO2 per kWh: 0, or 1e-06 to"),
        (["run", "--currency", "€" * 5000], "(5000 characters) is no currency; give its sign or code, such as € or"),
        (["run", "--currency", "\x1b[2J"], "'\\x1b[2J' is no currency; give its sign or code"),
        (["run", "--node-power", "1e99"], "argument --node-power: 1e+99 is out of range; give a number above 0"),
        (["run", "--node-power", "1_0"], "unknown source '1_0'; choose none, watts, rapl, ipmi, slurm or command:CMD"),
        (["run", "--prometheus", "0" * 5000], "(5000 characters) is no port; give 1 to 65535, or ADDRESS:PORT"),
        (["run", "--prometheus", "a b:9101"], "'a b' is no address to listen on; give ADDRESS:PORT or a port"),
        (["run", "--out", ""], "argument --out: the value is empty; give one, or leave the option out"),
        (["run", "--out", "a\0b"], "argument --out: 'a\\x00b' holds a NUL character; leave it out"),
        (["run", "--out", "a" * 300], "(300 characters) is longer than a path can be; give at most 4095 bytes, 255 "),
        (["run", "--out", "a/" * 300], "(600 characters) is longer than a path can be"),
        (["run", "--out", "a/" * 2500], "(5000 characters) is longer than a path can be"),
        (["run", "--progress", "regex:" + "(?i)[\u0100-\uffff]" * 5000], "has 45000 characters; give at most 1000"),
        (["run", "--strategy="], "argument --strategy: the value is empty"),
        (["run", *["--json"] * 1001], "these are 1001 words of options; give at most 1000"),
        (["attach", "--pid", "4294967296"], "argument --pid: '4294967296' is no process number; give one above 0, at "
         "most 2147483647"),
        (["report", "a" * 5000], "(5000 characters) is longer than a path can be"),
        (["report", ""], "argument RUN_DIR: the value is empty"),
        (["period", "\ud800"], "can name no file; give another path"),
        (["restore", "--", "something"], "unrecognized arguments: -- something"),
    ],
)  # fmt: skip
def test_a_size_that_is_too_large_or_too_small_is_refused_with_what_is_allowed(here, words, message, cli) -> None:
    job = ["--", "true"] if words[0] in ("run", "sweep") else []
    require_refused(cli, here(*words, *job), 2, message)


def test_a_sweep_of_more_runs_than_anybody_awaits_is_refused_before_the_first(here: Here, cli: Cli) -> None:
    words = ("sweep", "--device", "emulated", "--cap-step", "0.1", "--repeats", "1000", "--", "true")
    require_refused(cli, here(*words), 1, "these are 1601000 runs of the command, and a sweep has at most 20000")


def test_what_stands_behind_two_dashes_is_a_path_where_no_command_is_started(here: Here, cli: Cli) -> None:
    require_refused(cli, here("report", "--", "--nosuch"), 1, "--nosuch holds no run")


@pytest.mark.slow
@given(words=st.lists(st.sampled_from(["--json", "--gpus", "--", "=", "-x", "--out=", "", "\0", "run", "--k=--", "1"])))
def test_any_words_are_a_command_or_a_usage_error(words: list[str]) -> None:
    for command in ("run", "attach", "sweep", "report", "period"):
        with suppress(UsageError, SystemExit):
            parser_of(command)[1].parse_args(words)


def test_a_signal_ends_a_run_that_has_no_job_yet_and_leaves_nothing(cli: Cli) -> None:
    (cli.folder / "slow.py").write_text("import time\nopen('begun', 'w').close()\ntime.sleep(50)\n")
    cli.env["PYTHONPATH"] = f"{cli.folder}:{cli.env.get('PYTHONPATH', '')}"
    run = cli.start("run", "--device", "emulated", "--strategy", "slow:Search", "--", "touch", "started")
    eventually((cli.folder / "begun").exists)
    run.terminate()
    assert run.wait(5) == -signal.SIGTERM
    made = {path.name for path in cli.folder.iterdir()} - {"__pycache__"}
    assert made == {"begun", "err", "job.py", "machine.json", "out", "slow.py"}


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_a_percentage_reads_the_same_with_and_without_its_sign(value: float) -> None:
    assert values.percentage(f"{value!r}%") == values.percentage(repr(value)) == value / 100


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 5)), min_size=1, max_size=5))
def test_a_list_of_gpu_ranges_names_each_gpu_once_in_order(ranges: list[tuple[int, int]]) -> None:
    found = values.gpu_list(",".join(f"{first}-{first + more}" for first, more in ranges))
    wanted = [index for first, more in ranges for index in range(first, first + more + 1)]
    assert list(found) == list(map(str, dict.fromkeys(wanted)))


@given(st.lists(st.floats(min_value=1.0, max_value=1e4), min_size=1, max_size=6))
def test_caps_come_out_ascending_and_distinct_whatever_the_order(caps_w: list[float]) -> None:
    assert list(values.watts_list(",".join(map(repr, caps_w)))) == sorted(set(caps_w))
