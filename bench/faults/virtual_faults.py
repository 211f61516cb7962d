"""The faults that are injected in virtual time: of the NVML library at a random call, of the sensors, of the clock, of
the journal's disk, and another tool that sets limits."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from random import Random

from autocap.devices.nvml.state import ERRORS
from autocap.testing.nvml import Episode, Fault, Limits, Steps, Trouble, Way
from autocap.testing.nvml.machine import LOST, NO_PERMISSION, TIMEOUT, UNKNOWN
from bench.faults.outcome import Outcome, difference, silence
from bench.faults.virtual import ARRIVALS_MW, Report, Stage, play, usual

SET = "nvmlDeviceSetPowerManagementLimit"
COUNTER = "nvmlDeviceGetTotalEnergyConsumption"
_OTHER_MW = (222_222, 233_333)  # what another tool sets: no cap of ours, and no limit found on arrival
_STEPS_MW = (10_000, 12_500, 20_000, 25_000, 50_000)  # of a firmware of its own
_NOT_PUT_BACK = "could not be put back"
_LATEST = 0.7  # share of the job by which a sensor's fault has begun: it takes seconds to notice a stuck one
_LAST_SYNCS = 8  # those after the limits are back, which need not succeed
_BACK_WITHIN_S = 3.0  # and as long again as it was away: the tries come at growing intervals
_READ_BACK_S = 0.0015  # from a limit's taking hold until it has been read back


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One injection. inject: arms it. pattern: what must be said, `None` where the fault may pass unnoticed.

    fault: one of the library's, which must have been met.
    """

    inject: Callable[[Stage], object] = lambda stage: None
    pattern: str | None = None
    fault: Fault | None = None


@cache
def reference() -> Report:
    """The same job without a fault: how many calls there are, and when limits are set."""
    return play(usual(), lambda stage: None)


def injected(kind: str, seed: int) -> Outcome | None:
    """The outcome of one injection; `None` where the fault was never met, because the job had ended before."""
    planned = KINDS[kind](Random(f"{kind} {seed}"))
    stages: list[Stage] = []

    def inject(stage: Stage) -> None:
        stages.append(stage)
        planned.inject(stage)
        if planned.fault is not None:
            stage.fail(planned.fault)

    report = play(usual(), inject)
    if planned.fault is not None and not stages[0].library.met(planned.fault):
        return None
    return _judged(kind, seed, planned.pattern, report)


def _judged(kind: str, seed: int, pattern: str | None, report: Report) -> Outcome:
    changed = report.late or difference(report.expected_mw, report.limits_mw)
    overtaken = changed is not None and _overtaken(report)
    if overtaken:
        changed = None
    if changed is None and report.left_behind:
        changed = f"the journal still holds {', '.join(report.left_behind)}"
    harmed = report.raised
    if harmed is None and report.hung is None and not (report.status == 0 and report.ended):
        harmed = f"it ended with status {report.status}, its iterations {'done' if report.ended else 'not done'}"
    return Outcome(
        kind=kind,
        seed=seed,
        changed=changed,
        harmed=harmed,
        hung=report.hung,
        silent=silence(report.said, None if overtaken else pattern),
        by_restore=report.restored_later and changed is None,
        overtaken=overtaken,
        said=report.said,
    )


def _overtaken(report: Report) -> bool:
    """Whether each limit of the other tool that was lost fell into a call of ours: after our last look, and before ours
    took hold and was read back."""
    call_s = usual().call_s
    lost = [
        gpu for gpu, (want, got) in enumerate(zip(report.expected_mw, report.limits_mw, strict=True)) if want != got
    ]
    for gpu in lost:
        sets = [(t_s, limit_mw) for t_s, one, limit_mw in report.sets if one == gpu]
        theirs_s = max((t_s for t_s, limit_mw in sets if limit_mw == report.expected_mw[gpu]), default=-1.0)
        ours = [t_s for t_s, limit_mw in sets if limit_mw != report.expected_mw[gpu]]
        if not any(t_s - call_s <= theirs_s <= t_s + _READ_BACK_S for t_s in ours):
            return False
    return bool(lost)


def _any_call(rng: Random) -> int:
    """How many calls go well first: half of the faults are met before the first cap, while the sensors are watched."""
    calls = reference().calls
    return rng.randrange(calls) if rng.random() < 0.5 else rng.randrange(calls * 2 // 3, calls)


def _refused(rng: Random) -> Planned:
    fault = Fault(code=NO_PERMISSION, function=SET, after=rng.randrange(len(reference().sets)), times=None)
    return Planned(fault=fault, pattern="was not permitted")


def _lost(rng: Random) -> Planned:
    fault = Fault(code=LOST, after=_any_call(rng) // 2, times=None, gpu=rng.choice((0, 1)))
    return Planned(fault=fault, pattern="GPU_IS_LOST")


def _lost_and_back(rng: Random) -> Planned:
    """Falls off the bus while caps are set, and answers again after some seconds."""
    t_s, away_s = rng.uniform(0.3, 0.7) * reference().end_s, rng.uniform(0.5, 5.0)
    fault = Fault(code=LOST, times=None, gpu=rng.choice((0, 1)))

    def inject(stage: Stage) -> None:
        stage.clock.at(t_s, lambda: stage.fail(fault))
        stage.clock.at(t_s + away_s, stage.answer)
        stage.clock.at(t_s + 2 * away_s + _BACK_WITHIN_S, lambda: stage.demand("seconds after the GPU answers again"))

    return Planned(inject=inject, pattern="GPU_IS_LOST")


def _late(rng: Random) -> Planned:
    """Nobody lets this process run for some seconds, again and again."""
    times_s = [rng.uniform(0.0, reference().end_s) for _ in range(rng.randint(5, 60))]

    def inject(stage: Stage) -> None:
        for t_s in times_s:
            stage.clock.at(t_s, lambda: stage.clock.step(rng.uniform(0.1, 5.0)))

    return Planned(inject=inject)


def _passing(code: int) -> Callable[[Random], Planned]:
    """Fails some times, then works again; a call may hang for a while first."""

    def plan(rng: Random) -> Planned:
        delay_s = rng.choice((0.0, 0.0, 0.2, 3.0))
        fault = Fault(code=code, after=_any_call(rng), times=rng.randint(1, 4), delay_s=delay_s)
        return Planned(fault=fault)

    return plan


def _lasting(code: int) -> Callable[[Random], Planned]:
    def plan(rng: Random) -> Planned:
        fault = Fault(code=code, after=_any_call(rng), times=None)
        return Planned(fault=fault, pattern=ERRORS[code][0])

    return plan


def _other_code(rng: Random) -> Planned:
    code = rng.choice([code for code in ERRORS if code not in (LOST, TIMEOUT, UNKNOWN, NO_PERMISSION)])
    fault = Fault(code=code, after=_any_call(rng), times=rng.choice((1, 3, None)))
    return Planned(fault=fault)


def _card(pattern: str, until: float, **changes: object) -> Callable[[Random], Planned]:
    """A card is another from some time on. until: the latest, as a share of the job."""

    def plan(rng: Random) -> Planned:
        t_s, gpu = rng.uniform(0.1, until * reference().end_s), rng.choice((0, 1))
        return Planned(inject=lambda stage: stage.clock.at(t_s, lambda: stage.card(gpu, **changes)), pattern=pattern)

    return plan


def _ceiling(rng: Random) -> Planned:
    """Something else holds a card low, from before the limit found on arrival is last measured on: the caps after that
    are below, and nothing shows."""
    last_s = max(t_s for t_s, _, limit_mw in reference().sets[:-2] if limit_mw in ARRIVALS_MW)
    t_s, gpu = rng.uniform(0.1, last_s), rng.choice((0, 1))
    return Planned(
        inject=lambda stage: stage.clock.at(t_s, lambda: stage.card(gpu, ceiling_mw=170_000)),
        pattern="is enforced|holds GPU|holds a device",
    )


def _stepping(rng: Random) -> Planned:
    """The firmware takes limits in steps, from milliseconds to most of a second after they were set; the limits found
    it takes as they are, or steps are counted from there."""
    cards = (0, 1) if rng.random() < 0.7 else (rng.choice((0, 1)),)
    step_mw, lag_s = rng.choice(_STEPS_MW), rng.choice((0.0, rng.uniform(0.0, 0.03), rng.uniform(0.03, 0.8)))
    way, counted = rng.choice(list(Way)), rng.random() < 0.3

    def inject(stage: Stage) -> None:
        for gpu in cards:
            steps = Steps(step_mw=step_mw, lag_s=lag_s, way=way, untouched_mw=ARRIVALS_MW)
            if counted:
                steps = replace(steps, from_mw=ARRIVALS_MW[gpu] % step_mw)
            stage.card(gpu, steps=steps)

    return Planned(inject=inject, pattern="takes limits in steps|was ignored")


def _forgetful(rng: Random) -> Planned:
    """A driver that ignores sets now and then; sometimes of a card that takes steps as well."""
    share = rng.uniform(0.05, 0.4)
    steps = Steps(step_mw=25_000, untouched_mw=ARRIVALS_MW) if rng.random() < 0.3 else None

    def inject(stage: Stage) -> None:
        for gpu in (0, 1):
            stage.card(gpu, ignored_share=share, steps=steps)

    return Planned(inject=inject)


def _sensor(trouble: Trouble, pattern: str, **changes: object) -> Callable[[Random], Planned]:
    """changes: of the card, from the beginning."""

    def plan(rng: Random) -> Planned:
        from_s = rng.uniform(0.0, _LATEST * reference().end_s)
        until_s = from_s + rng.choice((12.0, 1e9))
        gpu, episodes = rng.choice((0, 1)), (Episode(trouble=trouble, from_s=from_s, until_s=until_s),)
        return Planned(inject=lambda stage: stage.card(gpu, episodes=episodes, **changes), pattern=pattern)

    return plan


def _disk_full(rng: Random) -> Planned:
    writes = rng.randrange(reference().synced - _LAST_SYNCS)
    return Planned(inject=lambda stage: setattr(stage, "syncs", writes), pattern="No space left on device")


def _clock(rng: Random) -> Planned:
    t_s, ahead = rng.uniform(0.0, reference().end_s), rng.random() < 0.5
    seconds = rng.choice((0.5, 3.0, 60.0, 3600.0))

    def set_wall(stage: Stage) -> None:
        stage.wall_step_s = seconds if rng.random() < 0.5 else -seconds

    def inject(stage: Stage) -> None:
        stage.clock.at(t_s, lambda: stage.clock.step(seconds) if ahead else set_wall(stage))

    return Planned(inject=inject)


def _other_tool(rng: Random) -> Planned:
    """Sets one to three limits, half of them about when one of ours is set."""
    sets = reference().sets
    aimed = rng.random() < 0.5
    writes = []
    for number in range(rng.randint(1, 3)):
        t_s = rng.choice(sets[:-2])[0] + rng.uniform(-0.05, 0.15) if aimed else rng.uniform(0.0, sets[-3][0])
        gpu = rng.choice((0, 1))
        writes.append((t_s, gpu, _OTHER_MW[gpu] + 1000 * number + rng.randrange(500)))

    def inject(stage: Stage) -> None:
        for t_s, gpu, limit_mw in writes:
            stage.clock.at(t_s, partial(stage.write_as_other, gpu, limit_mw))

    found_at_start = max(t_s for t_s, _, _ in writes) < sets[0][0]  # or noticed by then
    return Planned(inject=inject, pattern=None if found_at_start else "somebody else|another tool")


KINDS: dict[str, Callable[[Random], Planned]] = {
    "permission refused": _refused,
    "GPU lost": _lost,
    "GPU lost for a while": _lost_and_back,
    "timeout": _passing(TIMEOUT),
    "unknown error": _passing(UNKNOWN),
    "timeouts from then on": _lasting(TIMEOUT),
    "unknown errors from then on": _lasting(UNKNOWN),
    "any other return code": _other_code,
    "limits clamped": _card("clamped|" + _NOT_PUT_BACK, 0.98, limits=Limits.CLAMPED, clamp_mw=225_500),
    "limits ignored": _card("ignored|" + _NOT_PUT_BACK, 0.98, limits=Limits.IGNORED),
    "limits taken in steps": _stepping,
    "limits ignored now and then": _forgetful,
    "limits held lower from outside": _ceiling,
    # A counter would confirm, by chance, what a sensor is stuck at; then nothing is said, and nothing is lost.
    "sensor stuck": _sensor(Trouble.STUCK, "stuck", energy_counter=False),
    "sensor reads zero": _sensor(Trouble.ZERO, "reads 0 W"),
    "sensor gives nothing": _sensor(Trouble.MISSING, "no power reading|NO_DATA"),
    "energy counter lost": _card("energy counter", _LATEST, energy_counter=False),
    "journal's disk full": _disk_full,
    "clock set or stopped": _clock,
    "late again and again": _late,
    "another tool sets limits": _other_tool,
}
