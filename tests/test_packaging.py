"""A wheel holds only `autocap/`, and works where a `strategies/` of somebody else's lies about."""

import os
import subprocess
import sys
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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what git tracks, without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    tracked = run("git", "ls-files", "-z", cwd=ROOT).split("\0")[:-1]
    for name in tracked:
        if not (ROOT / name).exists() and not (ROOT / name).is_symlink():
            continue  # deleted and not yet committed
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            (source / name).symlink_to(os.readlink(ROOT / name))
        else:
            (source / name).write_bytes((ROOT / name).read_bytes())
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-build-isolation", "--no-deps")
    run(*pip, "--wheel-dir", folder, source, cwd=folder)
    return next(folder.glob("*.whl"))


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
        "autocap/guardian/watchdog.py",
        "autocap/testing/strategies.py",
    ):
        assert needed in names
    sources = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "autocap").rglob("*.py")
        if not {"strategies", "workloads"} & set(path.relative_to(ROOT / "autocap").parts[:1])
    }
    assert sources <= set(names)


def test_an_installed_wheel_runs_beside_a_strategies_folder_of_somebody_elses(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "strategies").mkdir()
    (tmp_path / "strategies" / "__init__.py").write_text("raise RuntimeError('not ours')")
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "__init__.py").write_text("raise RuntimeError('not ours')")
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    run(*pip, "--no-deps", "--no-index", wheel, cwd=tmp_path)
    assert "Finds the best power cap" in run(tmp_path / "env" / "bin" / "autocap", "--help", cwd=tmp_path)
    assert "--max-slowdown" in run(python, "-m", "autocap", "run", "--help", cwd=tmp_path)
    assert "resnet18" in run(python, "-m", "autocap.workloads", "train", "--help", cwd=tmp_path)
    assert run(python, "-c", "import autocap; autocap.step(); print(autocap.__file__)", cwd=tmp_path).startswith(
        str(tmp_path / "env")
    )
