"""Settings from variables and from files: which has its say, what is refused, and what `autocap config` shows; sources
of prices and carbon on the command line, and jobs that no bad source touches."""

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from autocap.cli import config, main, settings
from autocap.cli.run import checked
from autocap.config import RunConfig
from autocap.config.option import thresholds
from autocap.config.sweep import SweepConfig
from autocap.config.values import carbon, energy_price
from autocap.controller import tuning as of_controller
from autocap.measurement import tuning as of_measurement
from tests.cli.test_cli import EMULATED, Cli, Here, require_said
from tests.docs.pages import ROOT, text

VARIABLE = re.compile(r"\bAUTOCAP_[A-Z]\w*")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, beside one of the user's own settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    (tmp_path / "own" / "autocap").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def write(place: Path) -> Callable[..., Path]:
    def written(words: str, *, own: bool = False) -> Path:
        path = (place.parent / "own" / "autocap" if own else place) / "autocap.toml"
        path.write_text(words)
        return path

    return written


Write = Callable[..., Path]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RunConfig]:
    """The run that a command line comes to, with everything that is set elsewhere."""

    def of(line: str) -> RunConfig:
        found: list[RunConfig] = []

        def session(config: RunConfig | SweepConfig, *_: object) -> int:
            found.append(config.run if isinstance(config, SweepConfig) else config)
            return 0

        for name in ("session.modes.run", "session.modes.attach", "sweep.session.sweep"):
            monkeypatch.setattr(f"autocap.{name}", session)
        assert main(line.split()) == 0
        return found[0]

    return of


Made = Callable[..., RunConfig]


def test_the_command_line_goes_before_variables_and_they_before_files(write, made, monkeypatch) -> None:
    write("trial-seconds = 10\nwait = 10\nsample-hz = 10\nstrategy = 'golden'\n", own=True)
    write("trial-seconds = 20\nwait = 20\nsample-hz = 20\n")
    monkeypatch.setenv("AUTOCAP_TRIAL_SECONDS", "30")
    monkeypatch.setenv("AUTOCAP_WAIT", "30")
    run = made("run --trial-seconds 40 -- true")
    assert (run.tune.trial_s, run.tune.wait_s, run.sample_hz, run.strategy) == (40.0, 30.0, 20.0, "golden")
    sources = {one.name: one.source for one in run.taken}
    own = f"{os.environ['XDG_CONFIG_HOME']}/autocap/autocap.toml"
    assert sources == {"wait": "AUTOCAP_WAIT", "sample-hz": "./autocap.toml", "strategy": own}


def test_a_commands_table_goes_before_what_holds_for_all(write: Write, made: Made) -> None:
    write("metric = 'energy'\nwait = 20\n[attach]\nmetric = 'edp'\n[sweep]\nrepeats = 2\ngpus = ['0', '0,1']\n")
    assert made("run -- true").tune.metric.name == "energy"
    attached = made("attach --pid 1")
    assert (attached.tune.metric.name, attached.tune.wait_s) == ("edp", 20.0)
    assert made("sweep -- true").tune.wait_s != 20.0, "a sweep has no --wait"


def test_every_kind_of_value_is_read_as_on_the_command_line(write: Write, made: Made) -> None:
    write(
        "max-slowdown = '5%'\ncaps = [200, 150.5]\ngpus = [1, '3-4']\nretune = 300\nquiet = true\nforce = false\n"
        "prometheus = 9101\nout = 'there'\n[strategy-option]\ntolerance = 3\n"
    )
    run = made("run --strategy golden -- true")
    assert run.tune.metric.max_slowdown == 0.05
    assert (run.tune.caps_w, run.gpus, run.tune.retune) == ((150.5, 200.0), ("1", "3", "4"), 300.0)
    assert (run.quiet, run.force, run.prometheus, run.out) == (True, False, ("127.0.0.1", 9101), Path("there"))
    assert run.strategy_options == ()  # of another strategy


def test_a_variable_is_read_as_on_the_command_line(made: Made, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"STRATEGY_OPTION": "a=1 b=2", "QUIET": "yes", "FORCE": "0", "CAPS": "100,150", "K": ""}
    for name, value in values.items():
        monkeypatch.setenv(f"AUTOCAP_{name}", value)
    run = made("run -- true")
    assert (run.strategy_options, run.quiet, run.force) == ((("a", "1"), ("b", "2")), True, False)
    assert run.tune.caps_w == (100.0, 150.0)
    assert run.tune.metric.k == 2.0


@pytest.mark.parametrize(
    ("variable", "line", "observes"),
    [("1", "", True), ("false", "", True), ("0", "", False), ("0", "--observe", True), ("1", "--no-config", True)],
)
def test_the_variable_that_forbids_to_set_anything_does_so_whatever_else_is_said(
    variable: str, line: str, observes: bool, write: Write, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("observe = true\n")
    monkeypatch.setenv("AUTOCAP_OBSERVE", variable)
    assert made(f"run {line} -- true").tune.observe is observes


@pytest.mark.parametrize(
    ("words", "line", "unused"),
    [
        ("k = 1.5", "--metric energy", {"k": "the metric is energy"}),
        ("energy-price = 0.3\nhour-price = 1", "", {"hour-price": "the metric is eds"}),
        ("currency = 'EUR'", "", {"currency": "no energy price is given"}),
        ("currency = 'EUR'", "--energy-price 1", {}),
        ("energy-price = 0.3", "--metric cost", {}),
        ("cap-step = 10", "--caps 100,150", {"cap-step": "caps is given instead"}),
        ("caps = [100]", "--cap-step 10", {"caps": "cap-step is given instead"}),
        ("idle-power = 90", "", {"idle-power": "no power of the node is read"}),
        ("idle-power = 90\nnode-power = 100", "", {}),
        ("strategy-option = {points = 5}", "--strategy golden", {"strategy-option": "the strategy is golden"}),
        ("strategy-option = {tolerance = 5}\nstrategy = 'golden'", "--strategy golden", {}),
    ],
)
def test_what_is_about_something_else_has_no_say(words, line, unused, write, capsys, made) -> None:
    write(words)
    assert main(["config", "run", *line.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["option"]: row["unused"] for row in found["settings"] if row["unused"]} == unused
    run = made(f"run {line} -- true")
    assert not unused.keys() & {one.name for one in run.taken}


def test_settings_are_shown_with_where_they_come_from(write, capsys, monkeypatch) -> None:
    write("metric = 'cost'\n")
    write("energy-price = 0.3\n", own=True)
    monkeypatch.setenv("AUTOCAP_WAIT", "30")
    assert main(["config", "run", "--per-gpu", "--strategy=golden", "--strategy-option", "tolerance=5"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    own = f"{os.environ['XDG_CONFIG_HOME']}/autocap/autocap.toml"
    assert rows["metric"].split() == ["cost", "./autocap.toml"]
    assert rows["energy-price"].split() == ["0.3", own]
    assert rows["wait"].split() == ["30", "AUTOCAP_WAIT"]
    assert rows["per-gpu"].split() == ["yes", "command", "line"]
    assert rows["strategy-option"].split() == ["tolerance=5", "command", "line"]
    assert rows["trial-seconds"].split() == ["60", config.BUILT_IN]
    assert rows["./autocap.toml"] == rows[own] == "is read"


def test_with_all_each_threshold_is_shown_with_its_unit_and_its_reason(place: Path, capsys) -> None:
    rooms = {"measurement": of_measurement.TUNING, "controller": of_controller.TUNING}
    assert main(["config", "--all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for one in (one for tuning in rooms.values() for one in thresholds(tuning)):
        (line,) = (line for line in lines if line.startswith(f"{one.name} "))
        assert line.split(maxsplit=1)[1].startswith(f"{one.value:g} {one.unit} ")
        assert one.reason.split()[0] in line
    assert main(["config", "--all", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["thresholds"]
    assert shown == {room: list(map(asdict, thresholds(tuning))) for room, tuning in rooms.items()}
    assert main(["config", "--json"]) == 0
    assert "thresholds" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("\nmetrik = 'eds'", "./autocap.toml, line 2: there is no option 'metrik' (did you mean metric?); `auto"),
        ("max_slowdown = 5", "line 1: there is no option 'max_slowdown' (did you mean max-slowdown?)"),
        ("[atach]\nk = 2", "line 1: there is no option 'atach' (did you mean attach?)"),
        ("[run]\nrepeats = 2", "line 2: autocap run has no option 'repeats'; `autocap help run` lists them"),
        ("[sweep]\n\nrepeats = 0", "line 3: repeats: '0' is not a whole number above 0, at most 1000"),
        ("[sweep]\norder = 'up'", "line 2: order: unknown value 'up'; choose random, descending"),
        ("wait = true", "line 1: wait: it takes a value, as --wait S does"),
        ("wait = 2026-01-01", "line 1: wait: datetime.date(2026, 1, 1) is neither text nor number"),
        ("quiet = 'yes'", "line 1: quiet: it is true or false, not"),
        ("wait = [1, 2]", "line 1: wait: '1,2' is not a number; give a number above 0, in seconds"),
        ("wait = nan", "line 1: wait: 'nan' is not finite"),
        ("run = 5", "line 1: there is no option 'run'"),
        ("metric = eds", "./autocap.toml is no TOML: Invalid value (at line 1, column 10)"),
        ("a = " + "[" * 5000, "./autocap.toml is no TOML: too deeply nested"),
        ("#" * 70_000, "autocap.toml holds more than 64 KiB"),
        ("\udcff", "./autocap.toml is no UTF-8 text"),
        ("strategy = 'my.code:Search'", "line 1: strategy 'my.code:Search' has code run, which a folder may"),
        ("[attach]\nnode-power = 'command:sh'", "line 2: node-power 'command:sh' has code run"),
        ("[restore]\njson = true", "line 2: autocap restore takes no settings; leave them out"),
        ("[memory]\nhtml = true", "line 2: autocap memory has no option 'html'"),
        ("[report]\nenergy-price = -1", "line 2: energy-price: -1 is below 0"),
        ("[run]\nactuator = 'helper'", "line 2: actuator is called via now; write that instead"),
        ("dry-run = true", "line 1: there is no option 'dry-run'"),
        ("metric = 'edz'", "unknown metric 'edz' (did you mean eds?); choose one of energy, edp, ed2p, eds, cost, car"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_one_line_that_says_where(words, message, place, cli, here, monkeypatch) -> None:
    Path("autocap.toml").write_bytes(words.encode(errors="surrogateescape"))
    done = here("run", "--", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert re.fullmatch(r"autocap: .+\n", done.stderr), done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("AUTOCAP_K", "x", "AUTOCAP_K: 'x' is not a number; give a finite number"),
        ("AUTOCAP_QUIET", "maybe", "AUTOCAP_QUIET: 'maybe' is neither true nor false; give one of true, yes, 1"),
        ("AUTOCAP_METRIK", "eds", "'AUTOCAP_METRIK' is no AUTOCAP_… variable; set AUTOCAP_METRIC instead, or unset it"),
        ("AUTOCAP_ACTUATOR", "helper", "AUTOCAP_ACTUATOR is called AUTOCAP_VIA now; set that instead"),
        ("AUTOCAP_OBSERV", "1", "set AUTOCAP_OBSERVE instead"),
        ("AUTOCAP_SOCKET", "/tmp/x", "no AUTOCAP_… variable; set AUTOCAP_HELPER_SOCKET instead"),
        (f"AUTOCAP_{'NO_MEMORY'}", "1", "NO_MEMORY is no AUTOCAP_… variable; set AUTOCAP_MEMORY=0 instead"),
        ("AUTOCAP_METRIC", "edp", "k belongs to the metric eds, not to edp (with metric edp from AUTOCAP_METRIC)"),
    ],
)
def test_what_is_wrong_in_a_variable_is_one_line_that_names_it(variable, value, message, here, monkeypatch) -> None:
    monkeypatch.setenv(variable, value)
    done = here("run", "--k", "3", "--", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "run --metric engy",
        "run --metric edp --k 3",
        "run --caps 100 --cap-step 5",
        "run --finish-by 2001-01-01T00:00+00:00",
        "run --progress perid",
        "run --device emulatd",
        "run --strategy nope",
        "run --strategy-option nope=1",
        "attach --progress steps",
        "attach --idle-power 30",
        "sweep --metric carbon",
        "sweep --order random --stop-slowdown 5%",
    ],
)
def test_config_refuses_what_the_command_would(line: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command, *words = line.split()
    job = {"attach": ["--pid", "1"]}.get(command, ["--", "true"])
    assert main([command, *words, *job]) == 2
    refused = capsys.readouterr().err
    assert main(["config", *line.split()]) == 2
    assert capsys.readouterr().err == refused


@pytest.mark.parametrize("mode", [0o666, 0o646, 0o606])
def test_a_file_that_others_can_write_is_refused_unless_no_file_is_asked_for(mode, write, made, capsys) -> None:
    write("metric = 'energy'").chmod(mode)
    for command in ("run -- true", "config"):
        assert main(command.split()) == 2
        refused = "./autocap.toml is not to be trusted, as any user can write it; make it your own, with `chmod go-w`"
        assert refused in capsys.readouterr().err
    assert made("run --no-config -- true").taken == ()


def test_an_option_that_says_no_is_a_setting_without_it(write, made, monkeypatch, capsys) -> None:
    assert made("run -- true").memory
    assert not made("run --no-memory -- true").memory
    write("memory = false\n")
    run = made("run -- true")
    assert not run.memory
    assert [(one.name, one.value) for one in run.taken] == [("memory", "no")]
    monkeypatch.setenv("AUTOCAP_MEMORY", "yes")
    assert made("run -- true").memory
    assert main(["config", "run", "--no-memory", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["settings"]
    (row,) = [row for row in shown if row["option"] == "memory"]
    assert (row["value"], row["source"]) == ("no", "command line")
    write("no-memory = true\n")
    assert main(["run", "--", "true"]) == 2
    assert "there is no option 'no-memory' (did you mean memory?)" in capsys.readouterr().err


def test_a_file_that_is_none_is_never_opened(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("autocap.toml")
    assert main(["run", "--", "true"]) == 2
    assert "autocap.toml is a named pipe; pass a file; make it a plain file" in capsys.readouterr().err


def test_the_users_own_file_may_have_code_run(write: Write, made: Made) -> None:
    write("strategy = 'my.code:Search'", own=True)
    assert made("run -- true").strategy == "my.code:Search"


def test_a_script_takes_its_settings_from_nowhere_else(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("metric = 'nonsense'")
    monkeypatch.setenv("AUTOCAP_METRIC", "energy")
    assert checked(["--k=3"]).tune.metric.k == 3.0


def test_a_variable_of_a_strangers_is_left_alone(made: Made, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HELPER", "BUILD", "LICENCE_SERVER", "X"):
        monkeypatch.setenv(f"AUTOCAP_{name}", "1")
    assert made("run -- true").taken == ()


def test_other_commands_read_no_file(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("nonsense").chmod(0o666)
    assert main(["runs"]) == 0


def test_a_run_records_what_was_taken(cli: Cli, here: Here) -> None:
    Path("autocap.toml").write_text("observe = true\nwait = 9\n")
    done = here("run", "--device", "emulated", "--out", "run", "--json", "--", "true")
    require_said(done, 0, "autocap: settings taken: observe yes, wait 9 from ./autocap.toml\n")
    pairs = (("observe", "yes"), ("wait", "9"))
    taken = [{"name": name, "value": value, "source": "./autocap.toml"} for name, value in pairs]
    assert cli.events("settings_taken")[0]["settings"] == taken
    assert json.loads(done.stdout.splitlines()[-1])["settings"] == taken
    assert "observe yes, wait 9 from ./autocap.toml" in (cli.folder / "run" / "report.html").read_text()


@pytest.mark.slow
def test_no_variable_means_two_things_and_every_one_is_known_and_explained() -> None:
    of_options = {
        settings.variable(command, keyword) for command in settings.commands() for keyword in settings.options(command)
    }
    others = {settings.PREFIX + name for name in settings.OTHER_VARIABLES}
    assert not of_options & others
    known = of_options | others
    folders = (ROOT / name for name in ("autocap", "strategies", "workloads", "bench", "tests"))
    code = {name for folder in folders for path in folder.rglob("*.py") for name in VARIABLE.findall(path.read_text())}
    assert code - {"AUTOCAP_ACTUATOR", "AUTOCAP_METRIK", "AUTOCAP_OBSERV", "AUTOCAP_SOCKET"} <= known
    page = text(ROOT / "docs" / "configuration.md")
    for name in ("OBSERVE", "DEBUG", "STATE_DIR", "SYSFS"):
        assert f"`AUTOCAP_{name}" in page


def test_every_command_that_has_settings_reads_them(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("nonsense")
    child = ["--", "x"]
    words = {"run": child, "sweep": child, "attach": ["1"], "helper": ["status"]}
    words |= {"report": [], "memory": [], "devices": []}
    for command, more in words.items():
        assert main([command, *more]) == 2
        assert "./autocap.toml is no TOML" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["devices", "memory"])
def test_a_command_that_runs_no_job_has_a_table_and_variables_of_its_own(command, write, monkeypatch, capsys) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/nowhere")

    def prints_json() -> bool:
        assert main([command]) == 0
        return capsys.readouterr().out.startswith(("{", "["))

    write("json = true\n")
    assert not prints_json()
    monkeypatch.setenv("AUTOCAP_JSON", "1")
    assert not prints_json()
    monkeypatch.setenv(f"AUTOCAP_{command.upper()}_JSON", "1")
    assert prints_json()
    monkeypatch.delenv(f"AUTOCAP_{command.upper()}_JSON")
    write(f"[{command}]\njson = true\n")
    assert prints_json()
    assert main([command, "--no-config"]) == 0
    assert not capsys.readouterr().out.startswith(("{", "["))


def test_what_a_report_writes_is_asked_for_with_where_it_goes(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write('[report]\nout = "pages"\n')
    assert main(["config", "report", "--json"]) == 0
    shown = {one["option"]: one for one in json.loads(capsys.readouterr().out)["settings"]}
    assert (shown["out"]["value"], shown["out"]["unused"]) == ("pages", "no html is given")
    assert shown["energy-price"]["source"] == config.BUILT_IN


JOB = """
import time
from pathlib import Path

log, end_s = Path("run/events.jsonl"), time.monotonic() + 60
while time.monotonic() < end_s and not all(word in log.read_text() for word in ("sourced", "quoted", "no net")):
    time.sleep(0.05)
raise SystemExit(7)
"""
ROWS = "time,EUR/MWh\n2020-01-01T00:00Z,120\n2120-01-01T00:00Z,80\n"


def test_sources_of_prices_and_of_carbon_are_taken_as_they_are_written() -> None:
    for source in ("file:rows.csv", "command:./rows --now", "entsoe:DE_LU"):
        assert energy_price(source) == source
    for source in ("file:/a b/c", "command:a:b", "gb", "electricitymaps:US-CAL-CISO"):
        assert carbon(source) == source
    assert (energy_price("0.3"), carbon("380")) == (0.3, 380.0)


def test_a_file_that_cannot_be_used_is_said_before_the_job_starts(cli: Cli, here: Here) -> None:
    (cli.folder / "rows.csv").write_text("time,EUR/MWh\n2026-01-31T16:00,80\n")
    done = here("run", *EMULATED, "--energy-price", "file:rows.csv", "--", "touch", "started")
    require_said(done, 1, "rows.csv, line 2: time is '2026-01-31T16:00'; give a date with a zone")
    assert not (cli.folder / "started").exists()
    assert not (cli.folder / "autocap-runs").exists()


@pytest.mark.slow
def test_a_job_runs_as_it_would_while_a_source_fails(cli: Cli, here: Here) -> None:
    (cli.folder / "rows.csv").write_text(ROWS)
    (cli.folder / "job.py").write_text(JOB)
    fails = "echo no net >&2; exit 3"
    done = here(
        "run", *EMULATED, "--out", "run", "--energy-price", "file:rows.csv", "--carbon", f"command:{fails}",
        "--", sys.executable, "job.py",
    )  # fmt: skip
    require_said(done, 7, "the energy price is read from 'file:rows.csv'")
    assert "the energy price is 0.12 EUR per kWh" in done.stderr
    (warned,) = [line for line in done.stderr.splitlines() if "the carbon intensity cannot be read" in line]
    assert "'echo no net >&2; exit 3' ended with status 3: 'no net'; give rows under a heading" in warned
    assert json.loads((Path(cli.folder) / "run" / "result.json").read_text())["warnings"] != []
