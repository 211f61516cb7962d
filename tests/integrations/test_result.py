"""What a script has of a run: loaded, printed, and as a table."""

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import autocap
from autocap.cli import main
from autocap.errors import RunDirectoryError
from autocap.reports.summary.record import Summary
from tests.doubles.recorded import record


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("runs") / "run")


@pytest.mark.slow
def test_a_run_is_loaded_and_prints_as_its_report(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = autocap.load(str(recorded))
    assert main(["report", str(recorded)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{result}\n")
    assert "Measured caps" in str(result)
    assert main(["report", str(recorded), "--json"]) == 0
    stored = json.loads(capsys.readouterr().out)
    assert stored["ended_because"] == result.ended_because
    assert {one.name for one in fields(Summary)} >= stored.keys()


def test_the_kept_cap_prints_as_a_line(recorded: Path) -> None:
    chosen = autocap.load(recorded).chosen
    assert str(chosen).startswith(f"{chosen.setting[0]:g} W, confirmed: ")
    assert str(chosen).endswith(" J per iteration")
    assert "\n" not in str(chosen)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError):
        autocap.load(tmp_path)


def test_the_trials_are_a_table_of_pandas_where_that_is_there(recorded: Path) -> None:
    pandas = pytest.importorskip("pandas")
    result = autocap.load(recorded)
    table = result.trials_dataframe()
    assert isinstance(table, pandas.DataFrame)
    assert list(table["cap_w"]) == [max(trial.setting) for trial in result.trials]
    assert list(table["state"]) == [trial.state.value for trial in result.trials]
    assert (table["period_stderr_s"].dropna() > 0).all()


@pytest.mark.slow
def test_without_pandas_it_is_said_what_to_install(recorded: Path) -> None:
    script = f"""
import sys
sys.modules["pandas"] = None
import autocap
try:
    autocap.load({str(recorded)!r}).trials_dataframe()
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    said = "trials_dataframe() needs the package pandas; install it with: pip install pandas\n"
    assert (done.stdout, done.stderr) == (said, "")
