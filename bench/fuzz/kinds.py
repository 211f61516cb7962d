"""The kinds of cases: what each puts into the case's folder, and the command line that meets it."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

from autocap.limits.journal import SUFFIX, file_name
from autocap.runlog.directory import SAMPLES
from autocap.runlog.event_log import EVENTS
from bench.fuzz import arguments, mutation, odd_files, readings, texts
from bench.fuzz.case import Call
from bench.fuzz.specimens import UUID, Specimens

Maker = Callable[[Random, Path, Specimens], Call]
_OBSERVE = {"AUTOCAP_OBSERVE": "1"}  # whatever the machine has, nothing of it is to be set
_REPORTS = (("report",), ("report",), ("report", "--json"), ("report", "--html"), ("report", "--follow"))
_JOB = ("--", "true")


def command_lines(random: Random, folder: Path, specimens: Specimens) -> Call:
    """Any command with any options."""
    name = random.choice(arguments.COMMANDS)
    words = arguments.some(random, name)
    if name in ("run", "sweep"):
        words += _JOB if random.random() < 0.8 else ["--", texts.text(random), texts.text(random)]
        if not any("--device" in word for word in words[:-2]) or name == "sweep":
            words[:0] = ["--device", "nvml"]
    elif name in ("attach", "inside") and random.random() < 0.7:
        words += ["--pid", "999999"]
    elif name in ("report", "runs", "period"):
        _whole(folder, specimens)
        many = random.choice((0, 1, 1, 2, 3)) if name == "report" else 1
        run = "." if name == "runs" else "run"
        words += [random.choice((run, "nowhere", texts.text(random))) for _ in range(many)]
    if random.random() < 0.03:
        name = random.choice((texts.text(random), "", "--", "-h", "--version", "--help"))
    return Call(words=(name, *words), environment=_OBSERVE, talks=name in ("run", "sweep"))


def traces(random: Random, folder: Path, specimens: Specimens) -> Call:
    """Recorded power for `period`."""
    own = random.random() < 0.4
    data = mutation.in_table(random, specimens.samples if own else specimens.trace)
    (folder / "trace.csv").write_bytes(mutation.perhaps_zipped(random, data))
    more = random.choice(((), (), ("--json",), ("--window", "1"), ("--window", "10", "--json")))
    return Call(words=("period", *more, "trace.csv"))


def runs(random: Random, folder: Path, specimens: Specimens) -> Call:
    """The events of a run, reported."""
    _run(random, folder, specimens.run)
    return _report(random, folder, specimens)


def sweeps(random: Random, folder: Path, specimens: Specimens) -> Call:
    """The events of a sweep, reported, or gone on with."""
    _run(random, folder, specimens.sweep)
    if random.random() < 0.05:
        words = ("sweep", "--device", "emulated", "--caps", "150,200", "--repeats", "1", "--no-warm-up", "--out", "run")
        return Call(words=(*words, *_JOB), talks=True)
    return _report(random, folder, specimens)


def samples(random: Random, folder: Path, specimens: Specimens) -> Call:
    """The samples of a run, drawn into its page."""
    _whole(folder, specimens)
    data = mutation.perhaps_zipped(random, mutation.in_table(random, specimens.samples))
    (folder / "run" / SAMPLES).write_bytes(data)
    if random.random() < 0.2:
        return Call(words=("period", f"run/{SAMPLES}"))
    return Call(words=("report", "--html", "run"))


def warm_starts(random: Random, folder: Path, specimens: Specimens) -> Call:
    """An earlier run to begin from."""
    _run(random, folder, random.choice((specimens.run, specimens.run, specimens.sweep)))
    return Call(words=("run", "--device", "nvml", "--warm-start", "run", *_JOB))


def journals(random: Random, folder: Path, specimens: Specimens) -> Call:
    """A state directory, to be settled."""
    state = folder / "state"
    state.mkdir(0o700)
    for number in range(random.choice((1, 1, 1, 3, 300))):
        entry = dict(json.loads(json.dumps(specimens.entry)), uuid=UUID if number == 0 else f"{UUID}-{number}")
        name = file_name(str(entry["uuid"]), SUFFIX)
        if random.random() < 0.2:
            name = random.choice(
                (
                    name + ".tmp",
                    "x.json",
                    "%.json",
                    "%110000%.json",
                    "%d800%.json",
                    "%1b%[2J.json",
                    ".lock",
                    "a.lock",
                    "x.json.damaged",
                    "%ffffff%.lock",
                )
            )
        data = mutation.in_json(random, entry, random.choice((1, 1, 2))).encode("utf-8", "surrogatepass")
        (state / name).write_bytes(data if random.random() < 0.8 else mutation.in_bytes(random, data))
        (state / name).chmod(0o600)
    if random.random() < 0.15:
        odd_files.put(random, state / file_name(UUID, SUFFIX), specimens)
    if random.random() < 0.05:
        state.chmod(random.choice((0o777, 0o000, 0o400)))
    command = random.choice((("restore",), ("restore",), ("restore", "--json"), ("run", "--device", "auto", *_JOB)))
    return Call(words=command, environment=random.choice(({}, {}, _OBSERVE)), talks=command[0] == "run")


def odd_places(random: Random, folder: Path, specimens: Specimens) -> Call:
    """Devices, pipes, sockets, bombs and the like where a file is expected."""
    _whole(folder, specimens)
    run = folder / "run"
    which = random.randrange(8)
    if which == 0:
        odd_files.put(random, folder / "trace", specimens)
        return Call(words=("period", "trace"))
    if which == 1:
        odd_files.put(random, run / EVENTS, specimens)
        return _report(random, folder, specimens)
    if which == 2:
        odd_files.put(random, run / SAMPLES, specimens)
        return Call(words=("report", "--html", "run"))
    if which == 3:
        odd_files.put(random, run / EVENTS, specimens)
        return Call(words=("run", "--device", "nvml", "--warm-start", "run", *_JOB))
    if which == 4:
        odd_files.put(random, folder / "out", specimens)
        words = ("run", "--device", "auto", "--out", "out", *random.choice(((), ("--force",))), *_JOB)
        return Call(words=words, environment=_OBSERVE, talks=True)
    if which == 5:
        name = random.choice(("half-written.tmp", "report.html", "result.json"))
        odd_files.put(random, run / name, specimens)
        force = ("run", "--device", "auto", "--out", "run", "--force", *_JOB)
        words = random.choice((("report", "--html", "run"), force))
        return Call(words=words, environment=_OBSERVE, talks=words is force)
    if which == 6:
        odd_files.put(random, folder / "curves", specimens)
        return _curves(random, "curves")
    odd_files.put(random, folder / "state", specimens)
    return Call(words=random.choice((("restore",), ("run", "--device", "auto", *_JOB))), talks=True)


def curves(random: Random, folder: Path, specimens: Specimens) -> Call:
    """Cap curves for the benchmark of strategies."""
    (folder / "curves.csv").write_bytes(mutation.in_table(random, specimens.curves))
    return _curves(random, "curves.csv")


KINDS: dict[str, tuple[Maker, float]] = {  # and their shares
    "command lines": (command_lines, 3.0),
    "traces": (traces, 3.0),
    "runs": (runs, 4.0),
    "sweeps": (sweeps, 1.5),
    "samples": (samples, 1.5),
    "warm starts": (warm_starts, 0.7),
    "journals": (journals, 2.0),
    "curves": (curves, 0.5),
    "odd places": (odd_places, 1.0),
    "readings": (readings.maker, 1.0),
}


def _run(random: Random, folder: Path, lines: tuple[bytes, ...]) -> None:
    (folder / "run").mkdir()
    data = mutation.in_lines(random, lines, mutation.json_line)
    (folder / "run" / EVENTS).write_bytes(data if random.random() < 0.9 else mutation.in_bytes(random, data))


def _whole(folder: Path, specimens: Specimens) -> None:
    (folder / "run").mkdir()
    for name in (EVENTS, SAMPLES):
        (folder / "run" / name).write_bytes((specimens.folder / name).read_bytes())


def _report(random: Random, folder: Path, specimens: Specimens) -> Call:
    words = random.choice(_REPORTS)
    if random.random() < 0.2:
        (folder / "other").mkdir()
        (folder / "other" / EVENTS).write_bytes((specimens.folder / EVENTS).read_bytes())
        more = random.choice(((), ("--json",)))
        return Call(words=random.choice((("report", *more, "other", "run"), ("runs", *more, "."))))
    if words[-1] == "--html" and random.random() < 0.5:
        (folder / "run" / SAMPLES).unlink(missing_ok=True)
        (folder / "run" / SAMPLES).write_bytes(
            mutation.perhaps_zipped(random, mutation.in_table(random, specimens.samples))
        )
    return Call(words=(*words, "run"))


def _curves(random: Random, name: str) -> Call:
    words = ("strategies", "--curves", name, "--seeds", "1", "--strategies", random.choice(("linear", "golden")))
    return Call(module="bench", words=(*words, "--metrics", "energy"))
