"""What `autocap doctor --record DIR` measures: what is to be known of a card that may only be read.

Each step says what it has found, or why that was not possible here, and the next one goes on. Whatever is started
beside us is told to set nothing.
"""

import gzip
import io
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from statistics import fmean, stdev
from typing import IO, Any

import numpy as np

from autocap import __version__
from autocap.cli.examination import in_a_thread
from autocap.cli.findings import Finding, note, ok, trouble
from autocap.clock import MonotonicClock, RunClock
from autocap.config import OBSERVE_VARIABLE
from autocap.devices.nvml.job_gpus import visible
from autocap.devices.nvml.library import Library, NvmlGpu, open_library
from autocap.devices.nvml.measured_card import (
    POLLED,
    Floats,
    call_times,
    cuda_version,
    fields,
    lag,
    noise,
    poll,
    updates,
)
from autocap.devices.nvml.state import ERRORS
from autocap.errors import AutocapError
from autocap.job.processes import identify, import_path, spent_ns
from autocap.runlog.columns import columns_of
from autocap.runlog.output_directory import OutputDirectory

_AUTOCAP = (sys.executable, "-P", "-m", "autocap")
_TRAIN = (sys.executable, "-P", "-m", "autocap.workloads", "train")
RECORDED = {name: (*_TRAIN, name, "--seconds", "60") for name in ("resnet50", "vgg19", "inception3", "lstm")}
COUNTED = (*_TRAIN, "lstm", "--seconds", "30")
COMPARED = (*_TRAIN, "resnet50", "--seconds", "30", "--log-every", "1")  # its last line says how fast it was
_WAYS, _ROUNDS = ("alone", "run", "attach"), 3
_SETTLED_S, _STARTED_S = 5.0, 10.0  # after which a load is constant, and a process has begun
_REST_S = 20.0  # that sensors are watched where no load can be made
_LONGEST_S = 240.0  # of a process of ours
_LOOK_S = 0.1
_WINDOWS_S = (20, 40, 60)
_RIGHT, _MOST_STEPS = 0.02, 10  # how far off a period may be, and how many steps it may hold
# Lets sensors move at first; then it prints when each burst begins and ends, of which the last is constant load.
LOAD = (sys.executable, "-P", "-c", """
import random, time, torch
matrix = torch.randn(4096, 4096, device="cuda")
begun_s = time.monotonic()
while time.monotonic() < begun_s + 20:
    for _ in range(random.randrange(1, 10)):
        matrix @ matrix
    torch.cuda.synchronize()
    time.sleep(0.1 * random.random())
for seconds in (*[2.0] * 8, 60.0):
    time.sleep(2.0)
    begun_s = time.monotonic()
    print(begun_s, flush=True)
    while time.monotonic() < begun_s + seconds:
        matrix @ matrix
        torch.cuda.synchronize()
    print(time.monotonic(), flush=True)
""")  # fmt: skip
TORCH = (sys.executable, "-P", "-c", """
import json, torch
gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": gpu}))
""")  # fmt: skip
ERRORS_FILE = "stderr.txt"
_NO_TORCH = "there is no PyTorch in this Python"
_LEFT_OUT = (
    "what a cap does, as none was set; other GPUs of this machine; a transformer, and batch sizes other than the "
    "papers'; launches of kernels, and CUDA graphs; callbacks of transformers and Lightning; what autocap takes in "
    "other states than observing"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where things are measured. errors: what processes of ours say on standard error. found: what was measured, by the
    name of the step."""

    folder: OutputDirectory
    errors: IO[bytes]
    open_nvml: Callable[[], Library]
    clock: RunClock
    found: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """A process that has ended. last: line that it printed. share: of a core that it took once it had begun, its
    children left out; `None` where it was too short."""

    status: int
    last: str
    share: float | None


def go_through(
    folder: OutputDirectory, open_nvml: Callable[[], Library] = open_library, clock: RunClock | None = None
) -> Iterator[Finding]:
    """One step after the other: what it has found, when that is in its file. Raises AutocapError where no file can be
    written. open_nvml, clock: tests have others."""
    clock = MonotonicClock() if clock is None else clock
    with folder.create(ERRORS_FILE) as errors:
        place = _Place(folder=folder, errors=errors, open_nvml=open_nvml, clock=clock)
        for step, within_s in _STEPS.items():
            yield _found(place, step, within_s)
    yield note("left out", f"not covered: {_LEFT_OUT}")


def _found(place: _Place, step: "_Step", within_s: float) -> Finding:
    """What a step has found, or why it has not."""
    name = step.__name__.strip("_")
    try:
        text, place.found[name] = in_a_thread(partial(step, place)).result(within_s)
        finding = ok(name, text)
    except TimeoutError:
        finding = note(name, f"this has not ended within {within_s:g} s")
    except AutocapError as error:
        finding = note(name, f"not possible here: {error}")
    except Exception as error:  # noqa: BLE001 - the other steps are to be shown all the same
        finding = trouble(name, f"this failed: {type(error).__name__}: {error}")
    found = {"said": finding.text, "found": place.found.get(name)}
    _put(place, f"{name}.json", json.dumps(found, default=asdict, indent=1, allow_nan=False) + "\n")
    return finding


def _put(place: _Place, name: str, text: str) -> None:
    data = text.encode()
    try:
        place.folder.put(name, gzip.compress(data) if name.endswith(".gz") else data)
    except OSError as error:
        where = place.folder.path / name
        raise AutocapError(f"{where} cannot be written: {error.strerror}; name another directory") from error


# What is there, and what may be done with it.


def _versions(place: _Place) -> tuple[str, object]:
    found = {"autocap": __version__, "python": platform.python_version(), "kernel": platform.release(), "driver": None}
    no_load = None
    try:
        with place.open_nvml() as library:
            gpu = _gpu(library)
            found |= {"driver": gpu.driver, "driver_cuda": cuda_version(), "gpu": gpu.name, "uuid": gpu.uuid}
            if library.compute_pids(gpu.uuid) or library.is_busy(gpu.uuid):  # lists may be empty in a container
                no_load = "somebody computes on the GPU, whom a load would disturb"
    except AutocapError:
        no_load = "there is no GPU that can be used"
    done, devices = _run(TORCH, place), _run((*_AUTOCAP, "devices", "--json"), place)
    torch = json.loads(done.last) if done.status == 0 else None
    if no_load is None and not (torch and torch["gpu"]):
        no_load = "PyTorch sees no GPU" if torch else _NO_TORCH
    found |= {"torch": torch, "no_load": no_load, "devices": json.loads(devices.last or "null")}
    of_torch = f"{torch['torch']} (CUDA {torch['cuda'] or 'not built in'})" if torch else "not here"
    text = (
        f"driver {found['driver'] or 'not here'}, PyTorch {of_torch}, Python {found['python']}, autocap {__version__}"
    )
    return text if no_load is None else f"{text}; no load can be made: {no_load}", found


def _gpu(library: Library) -> NvmlGpu:
    """The first that CUDA_VISIBLE_DEVICES leaves."""
    gpus = library.inventory()
    allowed = visible(gpus, os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"))
    left = [gpu for gpu in gpus if allowed is None or gpu.uuid in allowed]
    if not left:
        raise AutocapError("; ".join(library.unreadable) or "the NVIDIA driver shows no GPU here")
    return left[0]


def _no_load(place: _Place) -> str | None:
    """Why none can be made."""
    found: str | None = place.found.get("versions", {"no_load": "what is here is not known"})["no_load"]
    return found


def _require_load(place: _Place) -> None:
    if (why := _no_load(place)) is not None:
        raise AutocapError(why)


def _calls(place: _Place) -> tuple[str, object]:
    with place.open_nvml() as library:
        uuid = _gpu(library).uuid
        times, answers = call_times(library, uuid), fields(library, uuid)
    failed = [(name, code) for name, one in times.items() for code in one.codes if code]
    slowest = max(times, key=lambda name: times[name].p99_s)
    taken = f"median {1000 * times[slowest].median_s:.2f} ms, 99 % within {1000 * times[slowest].p99_s:.2f} ms"
    there = ", ".join(name for name, answer in answers.items() if answer.code == 0) or "none"
    said = ", ".join(f"{name} answers {ERRORS.get(code, (code,))[0]}" for name, code in failed) or "none fails"
    text = f"of {len(times)} functions {said}; the slowest is {slowest}: {taken}; fields of power and energy: {there}"
    return text, {"times": times, "fields": {name: answer._asdict() for name, answer in answers.items()}}


def _sensors(place: _Place) -> tuple[str, object]:
    why = _no_load(place)
    polls, edges_s = _polled(place, at_rest=why is not None)
    shown = dict(zip(POLLED, polls.T, strict=True))
    t_s, _ = shown.pop("t_s"), shown.pop("instant_stamp_s")
    from_s, to_s = (edges_s[-2] + _SETTLED_S, edges_s[-1]) if len(edges_s) > 1 else (0.0, 0.0)
    steady = (t_s > from_s) & (t_s < to_s)
    moving = t_s < (edges_s[0] if edges_s else math.inf)  # when bursts begin and end, things move as the load does
    fresh = {name: one for name, values in shown.items() if (one := updates(t_s[moving], values[moving]))}
    lags = {name: late for name in shown if name != "energy_j" and (late := lag(t_s, shown[name], edges_s[:-1]))}
    noises = {name: noise(t_s[steady], values[steady]) for name, values in shown.items() if name.endswith("_w")}
    said = [
        f"{name} moved {one.count} times, every {1000 * one.every_s:.1f} ms, wandering by {1000 * one.wander_s:.1f} ms"
        for name, one in fresh.items()
    ]
    said += [f"energy_j moves by {fresh['energy_j'].step:.3g} J at least"] if "energy_j" in fresh else []
    said += [f"{name} lags by {1000 * one.half_s:.0f} ms" for name, one in lags.items()]
    said += [] if why is None else [f"lag and noise are not known without a load: {why}"]
    return "; ".join(said), {"updates": fresh, "lags": lags, "noise": noises, "edges_s": edges_s}


def _polled(place: _Place, *, at_rest: bool) -> tuple[Floats, list[float]]:
    """What the sensors show, which is kept as well; when our load began and ended, if there is one."""
    with place.open_nvml() as library, tempfile.TemporaryFile() as out:
        load = None if at_rest else _started(LOAD, out, place)
        end_s = place.clock.now() + (_REST_S if load is None else _LONGEST_S)

        def over() -> bool:
            return place.clock.now() > end_s or (load is not None and load.poll() is not None)

        try:
            polls = poll(library, _gpu(library).uuid, place.clock, over)
        finally:
            done = None if load is None else _ended(load, out, 0.0)
        out.seek(0)
        edges_s = [float(line) - place.clock.origin_s for line in out.read().split()]
    if done is not None and len(edges_s) < 2:
        raise AutocapError(f"the load ended with status {done.status}; {ERRORS_FILE} says why")
    text = io.StringIO()
    np.savetxt(text, polls, "%.6f", ",", header=",".join(POLLED), comments="")
    _put(place, "sensors.csv.gz", text.getvalue())
    return polls, edges_s


def _noise(place: _Place) -> tuple[str, object]:
    noises = place.found.get("sensors", {"noise": {}})["noise"]
    found = {name: one for name, one in noises.items() if one is not None}
    if not found:
        raise AutocapError("there was no constant load")
    return "; ".join(f"{name} {one.relative:.2%}, colour {one.colour[0]:+.2f}" for name, one in found.items()), found


# Recordings, and the periods in them.


def _recordings(place: _Place) -> tuple[str, object]:
    _require_load(place)
    words = (*_AUTOCAP, "run", "--observe", "--quiet", "--sample-hz=50")
    found = {
        name: _run((*words, f"--out={place.folder.path / name}", "--", *job), place) for name, job in RECORDED.items()
    }
    failed = [
        f"{name} ended with status {done.status} ({ERRORS_FILE} says why)"
        for name, done in found.items()
        if done.status
    ]
    return "; ".join([f"{len(found) - len(failed)} of {len(found)} workloads are recorded", *failed]), found


def _periods(place: _Place) -> tuple[str, object]:
    recorded = [name for name, done in place.found.get("recordings", {}).items() if done.status == 0]
    if not recorded:
        raise AutocapError("there is no recording")
    found = {name: [one for window_s in _WINDOWS_S for one in _windows(place, name, window_s)] for name in recorded}
    said = Counter(one["judged"] for windows in found.values() for one in windows)
    counts = ", ".join(f"{count} {judged}" for judged, count in sorted(said.items())) or "none is long enough"
    return f"of {sum(said.values())} windows {counts}", found


def _windows(place: _Place, name: str, window_s: int) -> Iterator[dict[str, Any]]:
    """What the detector says of each, beside the time of a step."""
    samples = place.folder.path / name / "samples.csv.gz"
    done = _run((*_AUTOCAP, "period", str(samples), f"--window={window_s}", "--json"), place)
    columns = columns_of([samples.read_bytes()], re.compile("steps|step_t_s")).values
    for one in json.loads(done.last) if done.status == 0 else ():
        within = (columns["step_t_s"] >= one["start_s"]) & (columns["step_t_s"] <= one["end_s"])
        steps = np.ptp(columns["steps"][within]) if within.any() else 0.0
        if one["end_s"] - one["start_s"] >= 0.9 * window_s and steps:
            step_s = float(np.ptp(columns["step_t_s"][within]) / steps)
            yield {**one, "window_s": window_s, "step_s": step_s, "judged": _judged(one, step_s)}


def _judged(one: Mapping[str, Any], step_s: float) -> str:
    if one["period_s"] is None:
        return "without a period"
    multiple = min(max(round(one["period_s"] / step_s), 1), _MOST_STEPS)
    right = abs(one["period_s"] / (multiple * step_s) - 1) < _RIGHT
    return f"{one['verdict']} and {'right' if right else 'wrong'}{', verified' if one['verified'] else ''}"


# What counting and observing do.


def _counts(place: _Place) -> tuple[str, object]:
    from autocap.progress.calls.counter import CallCounter
    from autocap.progress.calls.target import TORCH_BACKWARD
    from autocap.progress.steps.map import StepMap

    if not place.found.get("versions", {"torch": None})["torch"]:
        raise AutocapError(_NO_TORCH)
    seen, counter = [], CallCounter(TORCH_BACKWARD)
    with tempfile.TemporaryFile() as out, counter, StepMap.create() as hook:
        counter.rehearse()
        words = COUNTED if _no_load(place) is None else (*COUNTED, "--device", "cpu")
        job, begun_s = _started(words, out, place, hook.environment), time.monotonic()
        root = identify(job.pid)
        if root is not None:
            counter.watch(root)
        while job.poll() is None and time.monotonic() < begun_s + _LONGEST_S:
            before, calls, after = hook.read(0.0), counter.read(0.0), hook.read(0.0)
            if before is not None and calls is not None and before == after:
                seen.append((before.count, calls.count))
            time.sleep(_LOOK_S)
        _ended(job, out, 0.0)
    if len(seen) < 2:
        raise AutocapError(counter.trouble or "no call was counted beside a step")
    apart = [calls - steps for steps, calls in seen]
    drift = max(apart) - min(apart) - 1  # a step ends some time after its backward pass
    agree = "as many" if drift <= 0 else f"{drift} more or less"
    return f"while the hook counted {seen[-1][0] - seen[0][0]} steps, the kernel counted {agree} backward passes", seen


def _overhead(place: _Place) -> tuple[str, object]:
    _require_load(place)
    rounds = []
    for number in range(_ROUNDS):
        order = _WAYS if number % 2 == 0 else _WAYS[::-1]
        rounds.append({way: _compared(place, way) for way in order})
    said = []
    for way in _WAYS[1:]:
        slower = [1 - one[way][0] / one["alone"][0] for one in rounds]
        cost = f"{fmean(slower):.2%} ± {stdev(slower) / len(slower) ** 0.5:.2%} of the speed"
        shares = [share for one in rounds if (share := one[way][1]) is not None]
        taken = f", and takes {fmean(shares):.2%} of a core" if shares else ""
        said.append(f"{way} --observe costs {cost}{taken}")
    return "; ".join(said), rounds


def _compared(place: _Place, way: str) -> tuple[float, float | None]:
    """Images a second of that training, and what of a core autocap takes beside it (or, alone, the training)."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as out:
        words = (*_AUTOCAP, way, "--observe", "--quiet", f"--out={folder}/run")
        started = _started((*words, "--", *COMPARED) if way == "run" else COMPARED, out, place)
        beside = _run((*words, str(started.pid)), place) if way == "attach" else None
        done = _ended(started, out, _LONGEST_S)
    if done.status:
        raise AutocapError(f"the training ended with status {done.status}; {ERRORS_FILE} says why")
    return float(json.loads(done.last)["images_per_s"]), (done if beside is None else beside).share


# Processes of ours.


def _run(command: Sequence[str], place: _Place) -> _Done:
    with tempfile.TemporaryFile() as out:
        return _ended(_started(command, out, place), out, _LONGEST_S)


def _started(
    command: Sequence[str], out: IO[bytes], place: _Place, also: Callable[[dict[str, str]], dict[str, str]] = dict
) -> "subprocess.Popen[bytes]":
    """On the GPU that is looked at, and no other. also: what else its environment is to have."""
    env = {**os.environ, OBSERVE_VARIABLE: "1", "PYTHONPATH": os.pathsep.join(import_path())}
    if uuid := place.found.get("versions", {}).get("uuid"):
        env["CUDA_VISIBLE_DEVICES"] = uuid
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=place.errors, env=also(env))


def _ended(process: "subprocess.Popen[bytes]", out: IO[bytes], within_s: float) -> _Done:
    """Once it has; after so many seconds we end it."""
    begun_s, used = time.monotonic(), list[tuple[float, float]]()
    while process.poll() is None and time.monotonic() < begun_s + within_s:
        with suppress(OSError):  # it has ended just now
            used.append((time.monotonic(), spent_ns(process.pid) / 1e9))
        time.sleep(_LOOK_S)
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(10.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    out.seek(0)
    last = out.read().decode(errors="replace").strip().rpartition("\n")[2]
    used = [one for one in used if one[0] >= begun_s + _STARTED_S]
    share = (used[-1][1] - used[0][1]) / (used[-1][0] - used[0][0]) if len(used) > 1 else None
    return _Done(status=process.returncode, last=last, share=share)


_Step = Callable[[_Place], tuple[str, object]]
_STEPS: Mapping[_Step, float] = {  # seconds that each has
    _versions: 120.0,
    _calls: 120.0,
    _sensors: 300.0,
    _recordings: 1200.0,
    _periods: 300.0,
    _counts: 300.0,
    _overhead: 3600.0,
    _noise: 10.0,
}
