"""The log of a run with a baseline measured again, and trials of all kinds; no simulation changes its numbers."""

from dataclasses import replace

from autocap import events
from autocap.events import Event, State
from autocap.metrics import Metric
from autocap.records import CapRange, GpuEnergy, GpuInfo, Measurement, Trial, TrialState
from tests.doubles.feeds import measurement
from tests.doubles.logs import STARTED

EDS = Metric(name="eds", k=2.0)
FIRST = measurement(100.0, 0.5, energy_error=0.004, period_error=0.003)
SECOND = measurement(110.0, 0.52, energy_error=0.004, period_error=0.003)  # the machine is warmer by then
IN_TURN = measurement(109.0, 0.52, energy_error=0.002, period_error=0.002)


def window(cap_w: float, energy_j: float, period_s: float, error: float = 0.004) -> Measurement:
    return measurement(energy_j, period_s, cap_w=cap_w, energy_error=error, period_error=error)


def trial(measured: Measurement, baseline: Measurement, state: TrialState, reason: str | None = None) -> Trial:
    cost = EDS.cost(measured, baseline)
    return Trial(
        setting=measured.setting[0],
        state=state,
        reason=reason,
        cost=cost.value,
        cost_stderr=cost.stderr,
        measurement=measured,
    )


def told(metric: events.MetricInfo = STARTED.metric, *, emulated: bool = True) -> list[Event]:
    """The whole run, in order."""
    kind = CapRange(min_w=100.0, max_w=260.0, default_w=260.0)
    gpu = GpuInfo(index=0, uuid="GPU-0", name="Quadro RTX 6000", cap_range=kind)
    lucky, again = window(180.0, 78.0, 0.52), window(180.0, 96.0, 0.56)  # 0.91 and 0.975 of what their baselines cost
    steady = window(160.0, 76.0, 0.54)
    ended = [
        (40.0, trial(steady, FIRST, TrialState.COMPLETE)),
        (60.0, trial(lucky, FIRST, TrialState.COMPLETE, "time limit reached")),
        (70.0, trial(window(120.0, 80.0, 0.7), FIRST, TrialState.PRUNED, "worse than 160 W")),
    ]
    later = [
        (100.0, trial(again, SECOND, TrialState.COMPLETE)),
        (
            120.0,
            Trial(
                setting=200.0,
                state=TrialState.FAILED,
                reason="only 3 iterations within 6 s, 8 are needed; pass a larger --trial-seconds",
                cost=None,
                cost_stderr=None,
                measurement=None,
            ),
        ),
    ]
    return [
        replace(STARTED, metric=metric),
        events.DeviceFound(t_s=0.0, kind="nvml", emulated=emulated, gpus=(gpu,), original=(260.0,)),
        events.StateEntered(t_s=1.0, state=State.BASELINE),
        events.BaselineMeasured(t_s=20.0, measurement=FIRST),
        events.StateEntered(t_s=20.0, state=State.SEARCHING),
        *(events.TrialEnded(t_s=t_s, trial=one) for t_s, one in ended),
        events.BaselineMeasured(t_s=80.0, measurement=SECOND),
        *(events.TrialEnded(t_s=t_s, trial=one) for t_s, one in later),
        events.CapSet(t_s=120.0, setting=(160.0,)),
        events.TrialStarted(t_s=120.0, setting=160.0, expected=6),
        tally(125.0, 250.0),
        tally(130.0, 260.0),
        events.TrialEnded(t_s=135.0, trial=trial(window(160.0, 84.0, 0.56), SECOND, TrialState.COMPLETE)),
        events.StateEntered(t_s=140.0, state=State.CONFIRMING),
        events.Decided(
            t_s=160.0,
            setting=160.0,
            confirmed=True,
            reason="energy -23.9 ± 0.4 %, time +7.7 ± 0.5 %",
            measurement=window(160.0, 83.0, 0.56, 0.002),
            baseline=IN_TURN,
            expected="eds 0.919 at 160 W; the best, 0.917, at 165 W",
        ),
        events.StateEntered(t_s=160.0, state=State.HOLDING),
        tally(5600.0, 10_000.0),
        events.StateEntered(t_s=5600.0, state=State.DONE),
        events.LimitRestored(t_s=5600.0, uuid="GPU-0", final=260.0, restored=True),
        events.RunEnded(t_s=5600.0, ended_because="the job ended", exit_status=0),
    ]


def tally(elapsed_s: float, iterations: float) -> events.Tally:
    joules = 85.0 * iterations
    return events.Tally(
        t_s=elapsed_s,
        since_s=0.0,
        elapsed_s=elapsed_s,
        energy_j=joules,
        iterations=iterations,
        counted_s=elapsed_s,
        counted_j=joules,
        exploration_s=120.0,
        exploration_energy_j=20_000.0,
        exploration_iterations=240.0,
    )


def of_node(log: list[Event]) -> list[Event]:
    """The same with the machine's power, 100 W of it beside the GPU."""

    def whole(one: Measurement) -> Measurement:
        gpu = GpuEnergy(
            power_w=one.power_w,
            power_rel_stderr=0.0,
            energy_per_iteration_j=one.energy_per_iteration_j,
            energy_rel_stderr=one.energy_rel_stderr,
            time_energy_corr=0.0,
        )
        return replace(
            one,
            power_w=one.power_w + 100.0,
            energy_per_iteration_j=one.energy_per_iteration_j + 100.0 * one.period_s,
            gpu=gpu,
        )

    baselines: dict[float, Measurement] = {}
    out: list[Event] = [
        *log[:2],
        events.NodeMetered(t_s=0.0, source="ipmi", whole=True, refresh_s=1.0, idle_w=120.0, standard_idle_w=None),
    ]
    base: Measurement | None = None
    for event in log[2:]:
        if isinstance(event, events.BaselineMeasured):
            base = baselines.setdefault(event.t_s, whole(event.measurement))
            out.append(replace(event, measurement=base))
        elif isinstance(event, events.TrialEnded) and event.trial.measurement is not None and base is not None:
            out.append(
                replace(event, trial=trial(whole(event.trial.measurement), base, event.trial.state, event.trial.reason))
            )
        elif isinstance(event, events.Decided) and event.measurement is not None and event.baseline is not None:
            out.append(replace(event, measurement=whole(event.measurement), baseline=whole(event.baseline)))
        else:
            out.append(event)
    return out
