"""`python -m bench recurrences`: a small real training that comes again, by `autocap recur` on the emulated device.

First as often as is asked for, one after the other; then with autocap killed by SIGKILL at random moments; then two at
once. After each step whatever was finished before has to be kept as it was. Power is emulated, not measured.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

_SIZES = "512,32,1"
_NAME = "digits"
_TARGET = r"accuracy (\S+) >= 0.9"
_FINISHED = ("reached", "failed", "stopped")


@dataclass
class Recurring:
    """The job, in a folder of its own. log: what autocap and the jobs said."""

    folder: Path
    sizes: str
    log: Path
    finished: dict[int, dict[str, Any]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def start(self) -> subprocess.Popen[bytes]:
        """Begin a recurrence."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "autocap", "recur", "--name", _NAME, "--batch-sizes", self.sizes),
                    *("--target", _TARGET, "--metric", "energy", "--device", "emulated", "--retune", "never"),
                    *("--target-stderr", "3%", "--trial-seconds", "2", "--"),
                    *(sys.executable, "-m", "bench.recurrences.training", "--batch-size", "{batch_size}"),
                ],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def said_began(self) -> int:
        """How many recurrences have said that their job began: one that is refused before is none."""
        return len(re.findall(rf"autocap: recurrence \d+ of {_NAME}: ", self.log.read_text(errors="replace")))

    def recurrences(self) -> list[dict[str, Any]]:
        """All that is kept, oldest first."""
        words = [sys.executable, "-m", "autocap", "recur", "status", _NAME, "--json"]
        done = subprocess.run(words, cwd=self.folder, env=self._environment(), capture_output=True, check=False)
        if done.returncode:
            return []
        found: list[dict[str, Any]] = json.loads(done.stdout)["recurrences"]
        return found

    def _environment(self) -> dict[str, str]:
        ours = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
        state = {"XDG_STATE_HOME": str(self.folder / "state"), "AUTOCAP_STATE_DIR": str(self.folder / "guard")}
        return {**os.environ, **state, "PYTHONPATH": ours.rstrip(os.pathsep)}

    def check(self) -> list[dict[str, Any]]:
        """What is kept, after a look at whether all that was finished is kept as it was, and every number is there."""
        kept = self.recurrences()
        by_number = {one["number"]: one for one in kept}
        for number, before in self.finished.items():
            if by_number.get(number) != before:
                self.faults.append(f"recurrence {number} was {before} and is {by_number.get(number)}")
        if sorted(by_number) != list(range(len(kept))):
            self.faults.append(f"these are the numbers: {sorted(by_number)}")
        self.finished = {one["number"]: one for one in kept if one["outcome"] in _FINISHED}
        return kept


def main(argv: Sequence[str]) -> int:
    """Run it; 0 where nothing that was finished was lost."""
    parser = argparse.ArgumentParser(prog="python -m bench recurrences", description=__doc__)
    parser.add_argument("--recurrences", type=int, default=20, help="one after the other (default: 20)")
    parser.add_argument("--kills", type=int, default=10, help="that are killed at random moments (default: 10)")
    parser.add_argument("--pairs", type=int, default=3, help="of recurrences at once (default: 3)")
    parser.add_argument("--batch-sizes", default=_SIZES, help=f"(default: {_SIZES})")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    parser.add_argument("--log", type=Path, help="leave what is said in this file")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="autocap-recur-") as folder:
        log = Path(folder) / "log" if args.log is None else args.log.absolute()
        log.write_bytes(b"")
        job = Recurring(Path(folder), args.batch_sizes, log)
        _one_by_one(job, args.recurrences)
        _killed(job, args.kills, np.random.default_rng(args.seed))
        _at_once(job, args.pairs)
    for fault in job.faults:
        print(f"FAULT: {fault}")
    print(f"\nfinished and kept as they were: {len(job.finished)}; faults: {len(job.faults)}")
    return 1 if job.faults else 0


def _one_by_one(job: Recurring, count: int) -> None:
    print("| recurrence | batch size | outcome | cost J (emulated) | s | cap W |\n|---|---|---|---|---|---|")
    for _ in range(count):
        job.start().wait()
        _print(job.check()[-1])
    last = Counter(one["batch_size"] for one in job.recurrences()[count // 2 :])
    means = _means(job.recurrences())
    print(f"\nmean cost of those that reached the target: {means}; in the last half: {dict(last)}\n")


def _means(kept: Sequence[dict[str, Any]]) -> str:
    costs: dict[int, list[float]] = {}
    for one in kept:
        if one["outcome"] == "reached":
            costs.setdefault(one["batch_size"], []).append(one["cost"])
    return ", ".join(f"{size}: {np.mean(costs[size]):.0f} J of {len(costs[size])}" for size in sorted(costs))


def _killed(job: Recurring, count: int, rng: np.random.Generator) -> None:
    """Kill autocap at moments between its start and a little after its end, and then what it left running."""
    lasts_s = float(np.median([one["spent"]["time_s"] for one in job.finished.values()])) if job.finished else 10.0
    before = len(job.recurrences())
    for _ in range(count):
        run = job.start()
        with suppress(subprocess.TimeoutExpired):
            run.wait(rng.uniform(0.0, 1.3 * lasts_s))
        run.kill()
        run.wait()
        _end_jobs(job.folder)
        job.check()
    outcomes = Counter(one["outcome"] for one in job.recurrences()[before:])
    print(f"killed at random moments: {count}, of which {sum(outcomes.values())} had begun: {dict(outcomes)}")


def _end_jobs(folder: Path) -> None:
    """Kill the jobs of this folder that go on without their tuner, and wait until its watchdogs are done."""
    for log in folder.glob("autocap-runs/*/events.jsonl"):
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
        ended = any(line["event"] == "run_ended" for line in lines)
        for line in lines:
            if line["event"] == "run_started" and not ended and _is_of(line["pid"], folder):
                with suppress(ProcessLookupError):
                    os.killpg(line["pid"], signal.SIGKILL)
    time.sleep(0.5)


def _is_of(pid: int, folder: Path) -> bool:
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd")) == folder
    except OSError:
        return False


def _at_once(job: Recurring, count: int) -> None:
    before, said_before = len(job.recurrences()), job.said_began()
    for _ in range(count):
        pair = [job.start(), job.start()]
        for run in pair:
            run.wait()
        job.check()
    kept = job.recurrences()[before:]
    began = job.said_began() - said_before
    if len(kept) != began:
        job.faults.append(f"{began} recurrences were begun two at once, and {len(kept)} are kept")
    outcomes = dict(Counter(one["outcome"] for one in kept))
    print(f"two at once: {count} pairs, of which {began} had begun, kept: {len(kept)}: {outcomes}")


def _print(one: dict[str, Any]) -> None:
    cost = "" if one["cost"] is None else f"{one['cost']:.0f}"
    time_s = "" if one["spent"] is None else f"{one['spent']['time_s']:.1f}"
    cap = "" if one["cap_w"] is None else f"{one['cap_w']:g}"
    print(f"| {one['number']} | {one['batch_size']} | {one['outcome']} | {cost} | {time_s} | {cap} |", flush=True)
