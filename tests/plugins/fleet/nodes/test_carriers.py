"""What --nodes may name; what a Ray job's driver is given, and the relay; tests/frameworks has the real Ray."""

import json
import shlex
import sys

import pytest

from autocap.cli import main
from autocap.errors import EngineUnavailable
from autocap.plugins.fleet.nodes.carriers import ray as carrier


def test_what_workers_get_is_added_to_what_a_submitted_job_has() -> None:
    submitted = {"metadata": {"name": "x"}, "runtime_env": {"working_dir": "s3://w", "env_vars": {"A": "theirs"}}}
    environ = {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps(submitted)}
    given = carrier.for_workers({"A": "ours", "PYTHONPATH": "/hook"}, environ)
    config = json.loads(given.pop("RAY_JOB_CONFIG_JSON_ENV_VAR"))
    variables = {"A": "theirs", "PYTHONPATH": "/hook:${PYTHONPATH}"}
    assert config == {"metadata": {"name": "x"}, "runtime_env": {"working_dir": "s3://w", "env_vars": variables}}
    assert given == {"RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}  # else a script with its own PYTHONPATH would fail


def test_the_relay_is_not_given_what_is_meant_for_the_driver() -> None:
    environ = {"PATH": "/bin", **carrier.for_workers({"A": "1"}, {})}
    assert set(carrier.environment(environ)) == {"PATH", "PYTHONPATH"}


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EngineUnavailable, match=r"has no Ray; install it.*: pip install 'ray>=2.60,<3'"):
        carrier.command("auto")
    with pytest.raises(EngineUnavailable, match="has no Ray; install it"):
        carrier.find("auto")


def test_why_no_cluster_is_reached_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    says = "for second in range(3): print(f'[2026-01-01 00:00:0{second} W 1 1] client.cc:210: no token', flush=True)"
    relay = [sys.executable, "-c", f"{says}\nraise SystemExit('Ray cannot be reached at here: no answer')"]
    monkeypatch.setattr(carrier, "command", lambda *args, **options: ["sh", "-c", '"$@" 1>&2', "sh", *relay])
    with pytest.raises(EngineUnavailable) as refusal:
        carrier.find("here")
    assert str(refusal.value) == (
        "--nodes ray: no token | Ray cannot be reached at here: no answer; "
        "start the cluster, or name it: --nodes ray:HOST:6379"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--nodes slrum", "--nodes slrum: there is no 'slrum' (did you mean slurm?); choose slurm, ray"),
        ("--nodes slurm:x", "--nodes slurm:x: Slurm has no address here; name its job with --job ID"),
        ("--nodes ray:x --job 1", "--nodes ray:x has no such address; choose ray:ADDRESS as ray:10.0.0.1"),
        ("--nodes ray:", "'ray:' is no NAME or NAME:ADDRESS; choose slurm, ray or ray:ADDRESS"),
        ("--nodes ray", "--nodes ray has many jobs; name one with --job ID, its id in Ray"),
        ("--nodes slurm --job x", "--job x: not the id of a Slurm job, such as 4711 or 4711_2"),
        ("--nodes ray --job a/b", "'a/b' is no job; give its id, such as 4711 or 4711_2 in Slurm"),
    ],
)
def test_what_is_no_way_to_nodes(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", *shlex.split(words)]) == 2
    assert said in capsys.readouterr().err
