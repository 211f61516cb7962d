"""The command line as a user meets it: real processes, the emulated device, no torch."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from autocap.cli import main
from autocap.testing.nvml import FileBoard, Machine, environment
from tests.doubles import warm
from tests.doubles.waiting import eventually

ON_EMULATED = "--device emulated:quadro-rtx-6000/resnet50"
EMULATED = tuple(ON_EMULATED.split())
# A job that steps by hand, for so many seconds or until it is stopped. Most of each iteration it waits, as for a GPU,
# so that the tests beside it get on.
JOB = """
import os, sys, time, autocap
end = time.monotonic() + float(sys.argv[1])
done = 0
while time.monotonic() < end and not os.path.exists("stop"):
    for _ in range(20_000):
        pass
    time.sleep(0.004)
    autocap.step()
    done += 1
    print(done, flush=True)
"""


@pytest.fixture
def cli(tmp_path: Path) -> Iterator["Cli"]:
    made = Cli(tmp_path)
    yield made
    made.end()


@pytest.fixture
def here(cli: "Cli", monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> "Here":
    """The same in this very process, where what is meant is only what it says: starting one takes half a second."""
    for name in os.environ.keys() - cli.env.keys():
        monkeypatch.delenv(name)
    for name, value in cli.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(cli.folder)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        status = main(list(words))
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(words, status, out, err)

    return run


Here = Callable[..., subprocess.CompletedProcess[str]]


class Cli:
    """Runs autocap in a directory of its own, with a state directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.started: list[warm.WarmProcess] = []
        self.job = folder / "job.py"
        self.job.write_text(JOB)
        self.env = {**os.environ, "AUTOCAP_STATE_DIR": str(self.state), "NO_COLOR": "1"}
        self.env["AUTOCAP_SYSFS"] = str(folder / "sys")
        self.env["XDG_STATE_HOME"] = str(folder / "home-state")  # what one test has remembered, no other begins from
        for name in ("AUTOCAP_OBSERVE", "SUDO_UID", "SUDO_GID", "PYTHONPATH"):
            self.env.pop(name, None)
        # Whatever this machine has, autocap meets one without a driver, and without CPU packages.
        FileBoard.create(folder / "machine.json", Machine(profile="none", cards=(), has_driver=False))
        self.env = environment(folder / "machine.json", self.env)

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "autocap", *words]

    def __call__(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return warm.run(self.argv(*words), cwd=self.folder, env={**self.env, **env})

    def start(self, *words: str) -> warm.WarmProcess:
        with (self.folder / "out").open("w") as out, (self.folder / "err").open("w") as err:
            run = warm.start(self.argv(*words), cwd=self.folder, env=self.env, stdout=out.fileno(), stderr=err.fileno())
        self.started.append(run)
        return run

    def stop(self) -> None:
        """Let the job end."""
        (self.folder / "stop").touch()

    def ended(self, run: warm.WarmProcess) -> int:
        """The status of a run whose job is let end."""
        self.stop()
        return run.wait(120)

    def end(self) -> None:
        """End what a failed test left running."""
        for run in self.started:
            if run.poll() is None:
                run.terminate()
                run.wait(120)
        for event in self.events("run_started"):
            with suppress(ProcessLookupError):
                os.kill(int(str(event["pid"])), signal.SIGKILL)

    def leftovers(self) -> list[str]:
        return sorted(path.name for path in self.state.rglob("*") if path.is_file()) if self.state.exists() else []

    def done(self) -> int:
        """Iterations that the job has printed."""
        words = (self.folder / "out").read_text().split()
        return len(words)

    def events(self, name: str) -> list[dict[str, object]]:
        log = self.folder / "run" / "events.jsonl"
        if not log.exists():
            return []
        found = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
        return [event for event in found if event["event"] == name]


PRICED = "--metric cost --energy-price 0.3"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run", "a command is missing; write `autocap run [options] -- CMD …`"),
        ("run --", "a command is missing"),
        ("run --k 1 -- true", "k is 1.0; EDS needs a finite k above 1, such as 2"),
        ("run --k nan -- true", "argument --k: 'nan' is not finite"),
        ("run --metric edp --k 2 -- true", "k belongs to the metric eds, not to edp"),
        ("run --metric cost -- true", "the metric cost needs an energy price or an hour price above 0"),
        ("run --hour-price 1 -- true", "prices belong to the metric cost, not to eds"),
        ("run --metric carbon -- true", "the metric carbon needs the carbon of a kWh; add --carbon"),
        ("run --metric carbon --carbon 300 -- true", "the metric carbon needs what time is worth"),
        (
            "run --metric carbon --carbon 300 --carbon-price 80 -- true",
            "carbon is weighed against time by --carbon-price and --hour-price; add --hour-price",
        ),
        ("run --carbon-price 80 -- true", "a price of carbon belongs to the metric carbon, not to eds"),
        ("sweep --metric carbon -- true", "the metric carbon is for `autocap run` and `autocap attach`"),
        ("run --finish-by 2099-01-01 -- true", "'2099-01-01' has no zone; give a date and time with a"),
        ("run --finish-by tomorrow -- true", "'tomorrow' is no time; give a date and time with a zone"),
        ("run --finish-by 2099-01-01T07:00Z -- true", "--finish-by belongs to the metrics cost and carb"),
        (
            f"run {PRICED} --finish-by 2099-01-01T07:00Z -- true",
            "--finish-by needs to know how long the job is; add --iterations",
        ),
        (
            f"run {PRICED} --finish-by 2019-01-01T07:00Z --iterations 9 -- true",
            "--finish-by is a time that has passed; give one to come",
        ),
        ("sweep --energy-price 1 -- true", "prices belong to the metric cost, not to eds"),
        ("run --currency € -- true", "--currency € is of the energy price; add --energy-price, or drop"),
        ("run --currency '1 €' -- true", "'1 €' is no currency; give its sign or code, such as € or EUR"),
        ("run --max-slowdown 0 -- true", "argument --max-slowdown: 0 is not above 0"),
        ("run --max-slowdown 0.05 -- true", "argument --max-slowdown: 0.05 would be 0.05 %, and as a share 5"),
        ("run --target-stderr 0.005 -- true", "argument --target-stderr: 0.005 would be 0.005 %, and as"),
        ("run --max-slowdown x% -- true", "argument --max-slowdown: 'x' is not a number"),
        ("run --min-cap 200 --max-cap 100 -- true", "--min-cap 200 W is above --max-cap 100 W"),
        ("run --caps 100, -- true", "argument --caps: '' is not a number"),
        ("run --caps 100 --min-cap 150 -- true", "--caps holds 100 W, which --min-cap or"),
        ("run --caps 100 --cap-step 5 -- true", "--caps lists the caps, so --cap-step has"),
        ("run --cap-step 0 -- true", "argument --cap-step: 0 is not above 0"),
        ("run --target-stderr -1 -- true", "argument --target-stderr: -1 is not above 0"),
        ("run --sample-hz 500 -- true", "argument --sample-hz: 500 is out of range; give 1 to 100"),
        ("run --kill-after -1 -- true", "argument --kill-after: -1 is below 0"),
        ("run --gpus 0- -- true", "argument --gpus: '0-' is no GPU; give indices, ranges"),
        ("run --strategy-option foo -- true", "argument --strategy-option: 'foo' is not KEY=VALUE"),
        ("run --strategy golden --strategy-option tolerance=x -- true", "strategy option tolerance is 'x'; it takes a"),
        ("run --strategy fixed -- true", "this strategy needs the option cap"),
        ("run --progress regex:( -- true", "pattern '(' is no regular expression"),
        ("attach", "attach needs a job; give the PID of its process, or its nodes with --nodes WHERE"),
        ("attach --pid 1 --nodes slurm", "PID 1 is of this machine, --nodes slurm of a whole job; drop one"),
        ("attach --pid 1 --job 7", "--job 7 names a job of Slurm or Ray to attach to; add --nodes"),
        ("attach --pid 0", "argument --pid: '0' is no process number; give one above 0"),
        ("attach --pid 1 -- true", "attach starts no command; leave out `--` and what follows"),
        ("attach --pid 1 --progress regex:x", "progress regex:x needs a job that autocap starts"),
        ("attach --pid 1 --progress steps", "progress steps needs a job that autocap starts; choose"),
        ("attach --pid 1 --kill-after 3", "unrecognized arguments: --kill-after"),
        ("run --node-power 'command: ' -- true", "unknown source 'command: '"),
        ("run --node-power -5 -- true", "-5 is not above 0; give a number above 0, in watts"),
        ("run --node-power 0 -- true", "0 is not above 0"),
        ("run --node-power 350W -- true", "unknown source '350W'"),
        ("run --device rapl --node-power rapl -- true", "--node-power rapl would count the packages of --device rapl"),
        ("run --idle-power 100 -- true", "--idle-power is about the node's power; add --node-power, or drop it"),
        ("run --standard-idle 0 -- true", "--standard-idle is about the node's power; add --node-power, or drop it"),
        ("run --energy-price gb -- true", "unknown source 'gb'; give a number, in money per kWh, or file:PATH"),
        (
            "run --carbon entsoe:FR -- true",
            "unknown source 'entsoe:FR'; give a number, in grams of CO2 per kWh, or file:PATH",
        ),
        ("run --carbon gb:london -- true", "unknown source 'gb:london'"),
        ("run --energy-price 'command: ' -- true", "'command: ' names nothing; give a number"),
        ("run --energy-price -0.1 -- true", "-0.1 is below 0"),
        ("run --energy-price file:p --currency EUR -- true", "--currency EUR: the source of --energy-price names"),
        ("sweep", "a command is missing; write `autocap sweep [options] -- CMD …`"),
        ("sweep --idle-power 300 -- true", "--idle-power is about the node's power; add --node-power, or drop it"),
        ("sweep --repeats 0 -- true", "argument --repeats: '0' is not a whole number above 0"),
        ("sweep --gpus 0;;1 -- true", "argument --gpus: '' is no GPU; give indices, ranges"),
        ("sweep --gpus 0;0 -- true", "--gpus gives a set of GPUs twice; give each once"),
        ("sweep --order up -- true", "argument --order: invalid choice: 'up'"),
        ("sweep --order random --stop-slowdown 50% -- true", "--stop-slowdown ends a descent, and the order is random"),
        ("sweep --cool-down -1 -- true", "argument --cool-down: -1 is below 0"),
        ("nosuch", "unknown command 'nosuch'; choose one of run, attach, sweep, devices, doctor, restore"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(words, message, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(words)) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert re.fullmatch(r"autocap: .+\n", err), err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("run --strategy nosuch.module:Class -- true", 1, "strategy nosuch.module:Class cannot be loaded"),
        ("run --device rapl -- true", 1, "no CPU package with RAPL in"),
        (
            f"run {ON_EMULATED} --min-cap 80 -- true",
            1,
            "--min-cap 80 W is below the 100 W minimum of GPU 0; pass --min-cap 100",
        ),
        (
            f"run {ON_EMULATED} --max-cap 300 -- true",
            1,
            "--max-cap 300 W is above the 260 W maximum of GPU 0; pass --max",
        ),
        (f"run {ON_EMULATED} --caps 120,400 -- true", 1, "--caps 400 W is above the 260 W maximum of GPU 0"),
        (f"run {ON_EMULATED} --gpus 1 -- true", 1, "the emulated device has GPU 0 alone; pass --gpus 0"),
        (
            f"run {ON_EMULATED} --strategy fixed --strategy-option cap=50 -- true",
            1,
            "strategy option 50 W is below the 100 W minimum of GPU 0",
        ),
        (f"run {ON_EMULATED} -- nosuchcmd", 127, "command 'nosuchcmd' was not found in PATH"),
        (f"run {ON_EMULATED} -- /", 126, "'/' is a directory; name a program in it"),
        (f"sweep {ON_EMULATED} --gpus 0;0,1 -- true", 1, "--gpus 0,1: the emulated device has GPU 0 alone"),
        (f"sweep {ON_EMULATED} --caps 50 -- true", 1, "--caps 50 W is below the 100 W minimum of GPU 0"),
        ("attach --pid 4194305", 1, "there is no process 4194305; look the job's PID up with: ps -ef"),
        ("report nosuch", 1, "nosuch"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_its_exit_status(cli, here, words, status, message) -> None:
    require_refused(cli, here(*shlex.split(words)), status, message)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("run --device nvml -- true", 1, "no NVIDIA GPU can be used: opening NVML failed with LIBRARY_"),
        ("run -- nosuchcmd", 127, "command 'nosuchcmd' was not found in PATH"),
        ("sweep -- true", 1, "no NVIDIA GPU can be used"),
    ],
)
def test_on_a_machine_without_a_driver_it_is_said_in_one_line_too(cli, words, status, message) -> None:
    require_refused(cli, cli(*shlex.split(words)), status, message)


def terminated(run: warm.WarmProcess) -> int:
    run.terminate()
    return run.wait(120)


def require_said(done: "subprocess.CompletedProcess[str]", status: int, words: str) -> None:
    assert done.returncode == status
    assert words in done.stderr


def require_refused(cli: Cli, done: subprocess.CompletedProcess[str], status: int, message: str) -> None:
    assert done.returncode == status, done.stderr
    assert message in done.stderr
    assert re.fullmatch(r"autocap: .+\n", done.stderr), done.stderr
    assert done.stdout == ""
    assert cli.leftovers() == []
    assert not (cli.folder / "autocap-runs").exists()


def test_an_out_directory_that_holds_a_run_is_refused_without_force(cli: Cli, here: Here) -> None:
    (cli.folder / "run").mkdir()
    (cli.folder / "run" / "events.jsonl").write_text("")
    again = here("run", "--out", "run", "--", "true")
    assert again.returncode == 1
    assert re.fullmatch(r"autocap: run directory run holds a run already .* --force\n", again.stderr)
    assert cli("run", "--out", "run", "--force", "--", "sh", "-c", "exit 3").returncode == 3


@pytest.mark.parametrize("device", [(), EMULATED], ids=["auto", "emulated"])
def test_the_childs_status_output_and_streams_are_its_own(cli: Cli, here: Here, device: tuple[str, ...]) -> None:
    done = cli("run", *device, "--out", "run", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert "err\n" in done.stderr
    assert all(line == "err" or line.startswith("autocap:") for line in done.stderr.splitlines())
    assert here("run", *device, "--out", "b", "--quiet", "--", "sh", "-c", "kill -9 $$").returncode == 128 + 9
    assert cli.leftovers() == []


def test_auto_without_a_device_runs_the_child_untuned_with_one_warning_and_says_why(cli: Cli) -> None:
    rates = ("--energy-price", "0.3", "--currency", "€", "--carbon", "380")
    done = cli("run", "--out", "run", *rates, "--json", "--", "true")
    assert done.stderr.count("warning") == 1
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["device"] is None
    assert result["rates"] == {"energy_price": 0.3, "currency": "€", "carbon_g_per_kwh": 380.0}
    assert result["ended_because"].startswith("no device to tune")
    assert result == json.loads((cli.folder / "run" / "result.json").read_text())


@pytest.mark.slow
def test_help_answers_without_importing_anything_heavy(cli: Cli) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "autocap", "run", "--help"],
        cwd=cli.folder, env=cli.env, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0
    assert "--max-slowdown X%" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not imported & {"numpy", "scipy", "rich", "torch", "optuna"}


@pytest.mark.slow
def test_a_short_job_is_tuned_and_its_record_is_complete(cli: Cli, here: Here) -> None:
    run = cli.start(
        "run", *EMULATED, "--strategy", "fixed", "--strategy-option", "cap=137", "--target-stderr", "20%",
        "--trial-seconds", "2", "--out", "run", "--json", "--", sys.executable, "job.py", "40",
    )  # fmt: skip
    eventually(lambda: cli.events("trial_ended"))
    assert cli.ended(run) == 0
    result = json.loads((cli.folder / "out").read_text().splitlines()[-1])
    assert result["device"]["emulated"] is True
    assert result["device"]["gpus"][0]["restored"] is True
    assert result["progress"] == {"kind": "steps", "confidence": "high"}
    assert result["baseline"]["cap_w"] == [260.0]
    assert [trial["cap_w"] for trial in result["trials"]] == [[137.0]]
    assert "emulated" in (cli.folder / "err").read_text()
    assert cli.leftovers() == []
    shown = here("report", "run")
    assert shown.returncode == 0
    assert "EMULATED" in shown.stdout
    assert json.loads(here("report", "run", "--json").stdout) == result
    assert '<th scope="row">137</th>' in (cli.folder / "run" / "report.html").read_text()  # the row of its trial
    other = here("run", *EMULATED, "--warm-start", "run", "--", "true")
    assert other.returncode == 1
    assert "the command was" in other.stderr
    assert "is now 'true'" in other.stderr


@pytest.mark.slow
def test_observing_sets_nothing_whoever_asks_for_it(cli: Cli) -> None:
    cli.env["AUTOCAP_OBSERVE"] = "1"
    run = cli.start("run", *EMULATED, "--target-stderr", "20%", "--out", "run", "--", sys.executable, "job.py", "40")
    eventually(lambda: "observing only: a search would begin with" in (cli.folder / "err").read_text())
    assert cli.ended(run) == 0
    assert cli.events("cap_set") == []
    assert cli.leftovers() == []


def capped_job(cli: Cli, seconds: str = "40") -> "subprocess.Popen[str]":
    """A job that is being searched at 100 W, at which it runs about 1.6 times slower."""
    run = cli.start(
        "run", *EMULATED, "--strategy", "fixed", "--strategy-option", "cap=100", "--target-stderr", "0.001%",
        "--metric", "energy", "--trial-seconds", "2", "--out", "run", "--",
        sys.executable, "job.py", seconds,
    )  # fmt: skip
    eventually(lambda: cli.events("cap_set"))
    return run


def job_pid(cli: Cli) -> int:
    pid = cli.events("run_started")[0]["pid"]
    assert isinstance(pid, int)
    return pid


def process_state(pid: int) -> str:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0]


def is_never_stopped(pid: int, seconds: float) -> bool:
    """Whether a process is seen running or waiting, never stopped, for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process_state(pid) in "Tt":
            return False
        time.sleep(0.002)
    return True


@pytest.mark.slow
def test_after_sigkill_of_the_controller_the_job_is_at_full_speed_within_a_second_and_the_run_can_be_reported(
    cli: Cli, here: Here
) -> None:
    run = capped_job(cli)
    pid = job_pid(cli)
    assert not is_never_stopped(pid, 1.0)  # it is being throttled
    run.kill()
    run.wait()
    time.sleep(1.0)
    before = cli.done()
    assert is_never_stopped(pid, 0.3)
    assert cli.done() > before
    eventually(lambda: cli.leftovers() == [], 5.0)
    result = json.loads(here("report", "run", "--json").stdout)
    assert result["baseline"] is not None
    assert "killed" in result["ended_because"]


@pytest.mark.slow
def test_while_the_controller_is_stopped_the_job_runs_at_full_speed_after_two_seconds(cli: Cli) -> None:
    run = capped_job(cli)
    pid = job_pid(cli)
    run.send_signal(signal.SIGSTOP)
    time.sleep(2.0)
    assert is_never_stopped(pid, 0.3)
    run.send_signal(signal.SIGCONT)
    assert terminated(run) == 128 + signal.SIGTERM
    assert cli.leftovers() == []


@pytest.mark.slow
def test_sigterm_restores_and_is_passed_on_and_a_long_checkpoint_is_awaited(cli: Cli) -> None:
    script = "trap 'sleep 1; echo saved; exit 5' TERM; echo ready; while :; do sleep 0.1; done"
    run = cli.start("run", *EMULATED, "--out", "run", "--", "sh", "-c", script)
    eventually(lambda: "ready" in (cli.folder / "out").read_text() and cli.events("device_found"))
    assert terminated(run) == 5
    assert (cli.folder / "out").read_text() == "ready\nsaved\n"
    result = json.loads((cli.folder / "run" / "result.json").read_text())
    assert result["device"]["gpus"][0]["restored"] is True
    assert cli.leftovers() == []
