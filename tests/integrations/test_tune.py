"""`autocap.tune` and the callbacks, as training scripts use them: real processes on the emulated device; and a call
that was left is noticed, however it was left."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import get_args

import pytest

import autocap
from autocap.cli.run import checked
from autocap.config import RunConfig
from autocap.config.option import options_of
from autocap.errors import UsageError
from autocap.integrations.options import TuneOptions
from autocap.integrations.tuned import CallWatch, _job, _words
from autocap.job.processes import identify
from autocap.metrics import METRICS
from tests.cli.test_cli import EMULATED, Cli, is_never_stopped
from tests.doubles import warm
from tests.doubles.waiting import eventually

# What a script needs to train for so many seconds, and to say what came of it.
TRAINING = """
import json, os, sys, time
import autocap

def train(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(20_000))
        time.sleep(0.005)  # as for a GPU, so that the tests beside it get on
        autocap.step()
        if os.path.exists("stop"):
            break

def tell(result):
    assert result.chosen is None
    print(json.dumps([result.mode, result.ended_because, result.progress and result.progress.kind]))
"""
BLOCK = "with autocap.tune(device='emulated', out='run') as run:\n    train(60)\ntell(run.result)\n"
ENDED = ["tune", "the tuned block ended", "steps"]


def untuned(why: str) -> list[str | None]:
    return ["tune", why, None]


OTHER_RANK = untuned("another rank has the job tuned")


@pytest.fixture
def cli(tmp_path: Path) -> Iterator["Scripts"]:
    made = Scripts(tmp_path)
    yield made
    made.end()


class Scripts(Cli):
    """Starts Python scripts instead of autocap."""

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-c", TRAINING + words[0], *words[1:]]

    def counted(self, script: str) -> "subprocess.Popen[str]":
        """A script whose steps are counted."""
        started = self.start(script)
        eventually(lambda: self.events("progress_found"))
        return started

    def require_tuned(self, script: "subprocess.Popen[str]") -> None:
        """It ends well, says what came of its tuned block, and nothing of that is left."""
        assert self.ended(script) == 0
        assert self.said() == ENDED
        assert is_over(self)

    def said(self) -> object:
        return json.loads((self.folder / "out").read_text())


def is_over(cli: Cli) -> bool:
    return bool(cli.events("run_ended")) and cli.leftovers() == []


@pytest.mark.slow
def test_a_block_is_tuned_by_its_steps_and_tells_its_result_and_that_it_ended_before_it_was_measured(cli) -> None:
    script = cli.counted(BLOCK)
    (started,) = cli.events("run_started")
    assert (started["mode"], started["pid"]) == ("tune", script.pid)
    cli.require_tuned(script)
    assert cli.events("limit_restored")[0]["restored"] is True
    said = (cli.folder / "err").read_text().splitlines()
    assert any("autocap: tuning Quadro RTX 6000 (emulated)" in line for line in said)
    (untuned,) = [line for line in said if "nothing was tuned" in line]
    why = r"the block ended after \d+\.\d s, before the job was measured; put more of the training into it"
    assert re.fullmatch(f"autocap: nothing was tuned: {why}", untuned)


@pytest.mark.slow
def test_a_script_that_moves_about_and_ignores_sigterm_is_tuned_like_any_other(cli: Scripts) -> None:
    moves = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    script = cli.counted(moves + BLOCK.replace("train(60)", "train(60); os.chdir('/')"))
    cli.require_tuned(script)


@pytest.mark.slow
def test_an_exception_puts_the_limits_back_and_is_passed_on(cli: Scripts) -> None:
    script = cli.counted(BLOCK.replace("train(60)", "train(60); raise KeyError('mine')"))
    assert cli.ended(script) == 1
    assert "KeyError: 'mine'" in (cli.folder / "err").read_text()
    assert is_over(cli)


@pytest.mark.slow
def test_when_the_script_dies_the_tuning_ends_with_it(cli: Scripts) -> None:
    script = cli.counted(BLOCK)
    step_map = Path(map_of(tuner_of(script.pid)))
    assert step_map.name.startswith("autocap-steps-2-")
    script.kill()
    script.wait(120)
    eventually(lambda: is_over(cli))
    eventually(lambda: not step_map.exists())
    assert cli.events("run_ended")[0]["ended_because"] == "the job ended"


@pytest.mark.slow
def test_when_the_tuner_is_killed_the_script_runs_on_at_full_speed(cli: Scripts) -> None:
    script = cli.counted(BLOCK)
    os.kill(tuner_of(script.pid), signal.SIGKILL)
    eventually(lambda: cli.leftovers() == [], 5.0)
    assert is_never_stopped(script.pid, 0.2)
    assert cli.ended(script) == 0
    assert cli.said() == ["tune", "killed or still running", "steps"]


@pytest.mark.slow
def test_observing_sets_nothing(cli: Scripts) -> None:
    cli.env["AUTOCAP_OBSERVE"] = "1"
    script = cli.counted(BLOCK)
    assert cli.leftovers() == []
    assert cli.ended(script) == 0
    assert cli.events("cap_set") == []
    assert cli.said() == ENDED


@pytest.mark.slow
def test_without_a_device_it_trains_untuned_with_one_warning(cli: Scripts) -> None:
    script = cli.start("with autocap.tune(out='run') as run:\n    train(60)\ntell(run.result)\n")
    eventually(lambda: cli.events("warned"))
    assert cli.ended(script) == 0
    said = (cli.folder / "err").read_text()
    assert said.count("warning") == 1
    assert "nothing was tuned" not in said
    assert "autocap: warning: the job runs untuned: no device to tune: no NVIDIA GPU can be used" in said
    mode, why, kind = cli.said()
    assert (mode, kind) == ("tune", None)
    assert why.startswith("no device to tune: no NVIDIA GPU can be used: ")
    assert f"autocap: warning: the job runs untuned: {why}\n" in said


@pytest.mark.slow
def test_what_keeps_it_from_beginning_is_one_warning_and_an_older_result_is_not_its_own(cli: Scripts) -> None:
    (cli.folder / "run").mkdir()
    (cli.folder / "run" / "events.jsonl").write_text("")
    script = cli.start(BLOCK)
    eventually(lambda: (cli.folder / "err").read_text())
    assert cli.ended(script) == 0
    held = f"run directory {cli.folder / 'run'} holds a run already (events.jsonl)"
    why = f"{held}; choose another with --out, or replace it with --force"
    assert (cli.folder / "err").read_text() == f"autocap: warning: the job runs untuned: {why}\n"
    assert cli.said() == untuned(why)


def test_a_block_that_is_too_short_has_a_result_and_one_warning_that_says_so(cli: Scripts) -> None:
    done = cli(BLOCK.replace("60", "0.01"))
    mode, why, kind = json.loads(done.stdout)
    assert (done.returncode, mode, kind) == (0, "tune", None)
    assert re.fullmatch(r"the block ended after \d+\.\d s, before tuning began; put more of the training into it", why)
    assert done.stderr == f"autocap: nothing was tuned: {why}\n"
    assert not (cli.folder / "run").exists()


def test_readmes_own_lines_print_a_result_where_nothing_can_be_tuned(cli: Scripts) -> None:
    done = cli("with autocap.tune(metric='eds', k=2) as run:\n    pass\nprint(run.result.chosen)\n")
    assert (done.returncode, done.stdout) == (0, "None\n")


def test_a_notebook_shows_why_nothing_was_tuned_and_the_result_knows_its_rates(cli: Scripts) -> None:
    script = "with autocap.tune(energy_price=0.3, currency='€', carbon=380, quiet=True) as run:\n    pass\n"
    done = cli(f"{script}print(run.result.rates.currency, run.result._repr_html_())\n")
    assert done.stdout.startswith('€ <div class="autocap-result"><p><strong>Not tuned</strong></p>')
    assert "the block ended after" in done.stdout


def test_what_kept_a_process_from_being_started_is_the_result_and_one_warning(cli: Scripts) -> None:
    done = cli("def no(*a): raise OSError('no memory file')\nos.memfd_create = no\n" + BLOCK.replace("60", "0"))
    assert json.loads(done.stdout) == untuned("no memory file")
    assert done.stderr == "autocap: the job runs untuned: no memory file\n"


@pytest.mark.parametrize("variable", ["LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"])
def test_of_several_ranks_only_the_first_on_a_machine_starts_anything(cli: Scripts, variable: str) -> None:
    done = cli(BLOCK.replace("60", "0.1"), **{variable: "1"})
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, OTHER_RANK, "")


@pytest.mark.parametrize("variable", ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"])
def test_of_a_job_on_several_nodes_only_the_first_rank_of_all_starts_anything(cli: Scripts, variable: str) -> None:
    block = BLOCK.replace("60", "0.1").replace("out=", "nodes='slurm', out=")
    done = cli(block, **{variable: "1", "LOCAL_RANK": "0"})
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, OTHER_RANK, "")
    assert not (cli.folder / "run").exists()


@pytest.mark.parametrize(
    ("variable", "value", "is_launched"),
    [
        ("LOCAL_WORLD_SIZE", "2", True),
        ("LOCAL_WORLD_SIZE", "1", False),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2", True),
        ("SLURM_STEP_TASKS_PER_NODE", "2(x3)", True),
    ],
)
def test_a_launcher_is_known_by_the_ranks_that_it_has_started(monkeypatch, variable, value, is_launched) -> None:
    monkeypatch.setenv(variable, value)
    assert _job() == (os.getppid() if is_launched else os.getpid())


@pytest.mark.slow
def test_under_a_launcher_the_job_is_the_launcher_with_all_its_ranks(cli: Scripts) -> None:
    variables = {"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "2(x3)"}
    rank = f"subprocess.call({cli.argv(BLOCK)!r}, env={{**os.environ, **{variables!r}}})"
    launcher = cli.counted(f"import subprocess; sys.exit({rank})")
    assert cli.events("run_started")[0]["pid"] == launcher.pid
    cli.require_tuned(launcher)


@pytest.mark.slow
def test_ranks_that_multiprocessing_has_spawned_are_known_by_torch(cli: Scripts) -> None:
    (cli.folder / "ranks.py").write_text(
        TRAINING
        + "import multiprocessing, types\n"
        + "def work(rank):\n"
        + "    known = dict(is_available=lambda: True, is_initialized=lambda: True, get_world_size=lambda: 2)\n"
        + "    sys.modules['torch.distributed'] = types.SimpleNamespace(**known, get_rank=lambda: rank)\n"
        + "    "
        + BLOCK.replace("\n", "\n    ").rstrip()
        + "\nif __name__ == '__main__':\n"
        + "    ranks = [multiprocessing.get_context('spawn').Process(target=work, args=(rank,)) for rank in (1, 0)]\n"
        + "    [rank.start() for rank in ranks]\n"
        + "    [rank.join() for rank in ranks]\n"
    )
    launcher = cli.counted("os.execv(sys.executable, [sys.executable, 'ranks.py'])")
    assert cli.events("run_started")[0]["pid"] == launcher.pid
    assert cli.ended(launcher) == 0
    told = [json.loads(line) for line in (cli.folder / "out").read_text().splitlines()]
    assert sorted(told, key=str) == [OTHER_RANK, ENDED]


@pytest.mark.slow
def test_a_block_within_a_tuned_job_is_left_to_whoever_tunes_it(cli: Scripts) -> None:
    inner = BLOCK.replace("60", "0.1")
    words = ["run", *EMULATED, "--", *cli.argv(inner)]
    done = warm.run([sys.executable, "-m", "autocap", *words], cwd=cli.folder, env=cli.env)
    assert (done.returncode, json.loads(done.stdout)) == (0, untuned("the job is being tuned already"))
    assert "autocap: this block is not tuned: the job is being tuned already" in done.stderr


@pytest.mark.slow
def test_two_blocks_in_a_row_count_anew_and_a_step_before_them_is_harmless(cli: Scripts) -> None:
    done = cli("""
from pathlib import Path

def counted(out):
    log = Path(out, "events.jsonl")
    return log.exists() and "progress_" + "found" in log.read_text()  # the log holds this very script

autocap.step()
for out in ("one", "two"):
    with autocap.tune(device="emulated", out=out, quiet=True) as run:
        end = time.monotonic() + 20
        while not counted(out) and time.monotonic() < end:
            train(0.1)
    tell(run.result)
autocap.step()
""")
    assert done.stderr == ""
    assert [json.loads(line) for line in done.stdout.splitlines()] == [ENDED, ENDED]


@pytest.mark.slow
def test_a_fork_that_leaves_the_block_ends_nothing(cli: Scripts) -> None:
    script = cli.counted("""
with autocap.tune(device="emulated", out="run") as run:
    train(0.1)
    if os.fork() == 0:
        sys.exit()
    os.wait()
    train(60)
tell(run.result)
""")
    assert cli.events("run_ended") == []
    cli.require_tuned(script)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0.5}, "k is 0.5; EDS needs a finite k above 1"),
        ({"metric": "foo"}, "unknown metric 'foo'"),
        ({"nosuch": 1}, "autocap.tune has no option nosuch; choose cap_step, caps, carbon, carbon_price"),
        ({"actuator": "helper"}, "autocap.tune: actuator is called via now; give that instead"),
        ({"help": True}, "autocap.tune has no option help; choose"),
        ({"observe": "yes"}, "observe is True or False, not 'yes'"),
        ({"memory": 1}, "memory is True or False, not 1"),
        ({"gpus": True}, "gpus: it takes a value, as --gpus LIST does"),
        (
            {"max_slowdown": 5},
            "max_slowdown: 5 would be 500%, as numbers are shares, and 5% in percent; give '500%' or 0.05",
        ),
        ({"target_stderr": 0.5}, "target_stderr: 0.5 would be 50%, as numbers are shares, and 0.5% in percent; give"),
        ({"max_slowdown": -0.05}, "argument --max-slowdown: -5 is not above 0"),
        ({"progress": "regex:x"}, "progress regex:x needs a job that autocap starts; choose auto, steps"),
        ({"json": True}, "autocap.tune has no option json; read `run.result`"),
    ],
)
def test_wrong_options_are_an_error_at_once(options: dict[str, bool | str | float], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        autocap.tune(**options)
    assert message in str(raised.value)


def test_numbers_are_shares_so_that_what_a_result_holds_can_be_given_again() -> None:
    for share in (0.05, 0.07, 0.005, 0.999, 1 / 3):
        (word,) = _words({"max_slowdown": share})
        assert checked([word]).tune.metric.max_slowdown == pytest.approx(share, rel=1e-9)
    assert checked(_words({"target_stderr": 0.005})).tune.target_stderr == 0.005
    for text, share in (("5%", 0.05), ("5", 0.05), ("0.05%", 0.0005)):
        assert checked(_words({"max_slowdown": text})).tune.metric.max_slowdown == pytest.approx(share)


def test_options_are_written_as_on_the_command_line() -> None:
    options = {"max_slowdown": "5%", "gpus": [0, 1], "observe": True, "per_gpu": False, "k": None, "out": Path("a b")}
    assert (_words({"memory": False}), _words({"memory": True}), _words({"memory": None})) == (["--no-memory"], [], [])
    assert _words({**options, "strategy_option": {"trials": 5, "gain": 1}}) == [
        *("--max-slowdown=5%", "--gpus=0,1", "--observe", "--out=a b"),
        *("--strategy-option=trials=5", "--strategy-option=gain=1"),
    ]


def tuner_of(pid: int) -> int:
    """The process that tunes a script."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and identify(int(entry.name)) is not None:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"inside" in words and f"--pid={pid}".encode() in words:
                return int(entry.name)
    raise AssertionError(f"nobody tunes {pid}")


def map_of(tuner: int) -> str:
    """The step map that was handed down to a process that tunes."""
    words = Path(f"/proc/{tuner}/cmdline").read_text().split("\0")
    (fd,) = (word.partition("=")[2] for word in words if word.startswith("--step-map-fd="))
    return os.readlink(f"/proc/{tuner}/fd/{fd}")


def test_the_result_before_the_end_of_its_block_is_an_error_with_the_reason(cli: Scripts) -> None:
    done = cli("""
from autocap.errors import ResultUnavailable
with autocap.tune(device="emulated", out="run", quiet=True) as run:
    try:
        run.result
    except ResultUnavailable as error:
        print(error)
print(run.result.ended_because)
""")
    assert done.stderr == ""
    early, after = done.stdout.splitlines()
    assert early == "the block has not ended, so there is no result yet; read it after the block"
    assert after.startswith("the block ended after ")


@pytest.mark.slow
def test_a_function_is_tuned_each_time_that_it_is_called(cli: Scripts) -> None:
    done = cli("""
tuned = autocap.tune(device="emulated", quiet=True)

@tuned
def trained(seconds, *, name):
    '''Train.'''
    train(seconds)
    return name

print(trained.__name__, trained.__doc__)
for name in "ab":
    print(trained(0.3, name=name), tuned.result.mode, "block ended" in tuned.result.ended_because)
try:
    tuned(lambda: (yield))
except TypeError as error:
    print(error)
""")
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "trained Train.",
        "a tune True",
        "b tune True",
        "<lambda> does its work after the call; use `with autocap.tune(…)` within it",
    ]


def test_the_keywords_that_are_declared_with_their_types_are_those_that_there_are() -> None:
    declared = {option.keyword: option for option in options_of(RunConfig, "attach")}
    assert TuneOptions.__annotations__.keys() == declared.keys() - {"json"}
    for keyword, kind in TuneOptions.__annotations__.items():
        assert (bool in get_args(kind)) == (declared[keyword].read is None), keyword
    assert set(get_args(get_args(TuneOptions.__annotations__["metric"])[0])) == set(METRICS)


LOOK_EVERY_S = 0.001
LONG_S = 20.0


def train(inside: Callable[[], object]) -> None:
    """A call of the module `framework.trainer` within another."""
    namespace: dict[str, Callable[[Callable[[], object]], None]] = {"__name__": "framework.trainer"}
    exec("def loop(inside): inside()\ndef train(inside): loop(inside); inside()", namespace)
    namespace["train"](inside)


def test_a_call_is_left_by_an_exception_while_the_thread_goes_on() -> None:
    left, begun = Event(), []

    def fail() -> None:
        begun.append(CallWatch("framework.trainer", left.set, LOOK_EVERY_S))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        train(fail)
    assert len(begun) == 1
    assert left.wait(LONG_S)


def test_the_outermost_call_counts_and_is_under_way_until_it_returns() -> None:
    left, seen = Event(), []

    def step() -> None:
        if not seen:
            CallWatch("framework.trainer", left.set, LOOK_EVERY_S)
        seen.append(left.wait(0.03))  # the second time the inner call has been left

    train(step)
    assert seen == [False, False]
    assert left.wait(LONG_S)


def test_a_watch_that_was_closed_or_finds_no_such_call_under_way_calls_nobody() -> None:
    left = Event()
    train(lambda: CallWatch("framework.trainer", left.set, LOOK_EVERY_S).close())
    CallWatch("framework.trainer", left.set, LOOK_EVERY_S)
    assert not left.wait(0.03)
