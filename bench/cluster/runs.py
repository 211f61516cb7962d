"""`autocap run` over a pretended cluster: its command, its processes, and what it left."""

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autocap.job.processes import ProcessId
from autocap.testing.nvml import environment, plain
from autocap.wire.codec import decode
from bench.cluster import layout, up
from bench.cluster.job import Done
from bench.cluster.layout import ROOT, Cluster
from bench.common import Late, until

_ALLOCATE_S = 60.0
_MARK = "PRETENDED_RUN"  # in the environment of every process of a run: its directory
_LOOK_BATCH_S = 0.1
_TELL = 12  # lines of what was said
# Not from the directory it is started in, and the same interpreter.
_RUN = ("-P", "-m", "autocap", "run")


@dataclass(kw_only=True)
class Started:
    """A run that was started. out: its run directory, beside which what it says is kept. process: `autocap run`."""

    process: "subprocess.Popen[bytes] | _InBatch"
    out: Path

    def everyone(self) -> list[ProcessId]:
        """Its processes, the job's too, on whatever node, whoever their parents are by now."""
        return list(layout.marked(f"{_MARK}={self.out}"))

    def said(self) -> tuple[str, ...]:
        return tuple(_said(self.out).read_text(errors="replace").splitlines())

    def wait(self, seconds: float) -> int:
        """Its exit status. Raises Late."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Late(f"{self.out} still ran after {seconds:.0f} s; it last said: {self.told()}") from None

    def told(self) -> str:
        return " / ".join(self.said()[-_TELL:]) or "nothing"

    def has_begun(self) -> bool:
        """Whether the devices are known, so that their limits may be set."""
        log = self.out / "events.jsonl"
        return log.exists() and '"device_found"' in log.read_text()

    def has_result(self) -> bool:
        """Whether it has written its result.json."""
        return (self.out / "result.json").exists()

    def ranks(self) -> list[Done]:
        """What the job's own ranks printed at their ends."""
        lines = _printed(self.out).read_text().splitlines()
        return [decode(Done, json.loads(line)) for line in lines if line.startswith("{")]

    def result(self) -> dict[str, Any]:
        """Its result.json."""
        held: dict[str, Any] = json.loads((self.out / "result.json").read_text())
        return held


@contextmanager
def allocation(cluster: Cluster) -> Iterator[dict[str, str]]:
    """All nodes of a cluster, for some runs: what the environment of those holds then. Under Slurm they are given to
    no command, so that none takes them along when it ends. Raises Late."""
    if cluster.engine != "slurm":
        yield up.environment(cluster)
        return
    count, env = str(cluster.nodes), up.environment(cluster)
    ask = cluster.as_user(["salloc", "--no-shell", "-N", count, "-n", count])
    asked = subprocess.run(ask, env=env, capture_output=True, text=True, timeout=_ALLOCATE_S)
    granted = re.search(r"Granted job allocation (\d+)", asked.stderr)
    if granted is None:
        raise Late(f"salloc gave no nodes: {asked.stderr.strip()}")
    try:
        yield env | {"SLURM_JOB_ID": granted[1]}
    finally:
        subprocess.run(["scancel", granted[1]], env=env, capture_output=True, timeout=_ALLOCATE_S)


def on_cluster(
    cluster: Cluster, allocated: Mapping[str, str], out: Path, options: Sequence[str], job: Sequence[str]
) -> Started:
    """Start a run on all nodes. allocated: what `allocation` gave. job: options of the job."""
    run = (sys.executable, *_RUN, "--nodes", cluster.engine, "--out", str(out), *options, "--")
    module: tuple[str, ...] = (sys.executable, "-m", "bench.cluster.ray_job")
    if cluster.engine == "slurm":
        count = str(cluster.nodes)
        module = ("srun", "-N", count, "-n", count, "--cpu-bind=none", sys.executable, "-m", "bench.cluster.job")
    return _started(cluster.as_user((*run, *module, *job)), allocated, out, shared=cluster.helper)


class _InBatch:
    """What `Started` asks of a process, of a batch job: it lives for as long as any of its own does."""

    pid, returncode = 0, None

    def __init__(self, out: Path) -> None:
        self._out, self._looked_s, self._is_there, self._was_there = out, 0.0, False, False

    def poll(self) -> int | None:
        """0 once it has ended, however; `None` until then."""
        if time.monotonic() - self._looked_s > _LOOK_BATCH_S:
            self._is_there = next(layout.marked(f"{_MARK}={self._out}"), None) is not None
            self._was_there = self._was_there or self._is_there
            self._looked_s = time.monotonic()
        return None if self._is_there or not self._was_there else 0

    def wait(self, seconds: float) -> int:
        """As Popen has it."""
        until(lambda: self.poll() is not None, "the batch job ends", seconds, _LOOK_BATCH_S)
        return 0


def in_batch(cluster: Cluster, out: Path, options: Sequence[str], job: Sequence[str]) -> tuple[Started, str]:
    """Start a run in a batch script as docs/slurm.md has it; it, and the number of the job."""
    count = str(cluster.nodes)
    run = (sys.executable, *_RUN, "--nodes", "slurm", "--out", str(out), *options, "--")
    step = ("srun", "-N", count, "-n", count, sys.executable, "-m", "bench.cluster.job", *job)
    script = out.with_name(f"{out.name}.sh")
    script.parent.mkdir(parents=True, exist_ok=True)
    script.parent.chmod(0o777)
    script.write_text(f"#!/bin/bash\nexec {shlex.join((*run, *step))}\n")
    asked = ("sbatch", "--parsable", "-N", count, "-n", count, f"--gpus-per-node={cluster.gpus}", "--requeue")
    given = subprocess.run(
        cluster.as_user((*asked, f"--output={_printed(out)}", f"--error={_said(out)}", str(script))),
        env={**up.environment(cluster), _MARK: str(out)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=_ALLOCATE_S,
    )
    return Started(process=_InBatch(out), out=out), given.stdout.strip()


def on_one_node(board: Path, out: Path, options: Sequence[str], job: Sequence[str]) -> Started:
    """Start a run on one emulated machine."""
    run = (sys.executable, *_RUN, "--out", str(out), *options, "--")
    env = environment(board, plain() | {"AUTOCAP_STATE_DIR": str(board.with_suffix(""))})
    return _started((*run, sys.executable, "-m", "bench.cluster.job", *job), env, out)


def _started(command: Sequence[str], env: Mapping[str, str], out: Path, *, shared: bool = False) -> Started:
    """shared: another user writes there."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if shared:
        out.parent.chmod(0o777)
    with open(_printed(out), "wb") as printed, open(_said(out), "wb") as said:
        process = subprocess.Popen(
            command,
            env={**env, _MARK: str(out)},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=said,
            start_new_session=True,
        )
    return Started(process=process, out=out)


def _said(out: Path) -> Path:
    return out.with_name(f"{out.name}.err")


def _printed(out: Path) -> Path:
    return out.with_name(f"{out.name}.out")
