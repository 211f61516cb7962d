"""What a run says while it runs: plain lines beside the job's output, or a live view where the terminal is ours.

Everything goes to stderr; stdout belongs to the job. A terminal that has gone away is no reason to stop.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from autocap import events
from autocap.energy import node_power_w
from autocap.events import Event, State
from autocap.records import Measurement, Sample, Trial, TrialState

PREFIX = "autocap: "
_REFRESH_S = 0.25
_SHOWN_TRIALS = 12
_WIDTH = 120  # of a report, where there is no terminal to say


class Quiet:
    """Says nothing."""

    def event(self, event: Event) -> None:
        return

    def sample(self, sample: Sample) -> None:
        return

    def say(self, lines: Sequence[str]) -> None:
        return

    @property
    def width(self) -> int:
        """Characters that a line of `say` has room for."""
        return _WIDTH

    def close(self) -> None:
        return


class PlainLines(Quiet):
    """One line an event, each beginning with `autocap:`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._words = Wording()

    def event(self, event: Event) -> None:
        line = self._words.line(event)
        if line is not None:
            self.say([line])

    @property
    def width(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns - len(PREFIX)
        except (OSError, ValueError):  # no terminal
            return _WIDTH

    def say(self, lines: Sequence[str]) -> None:
        with suppress(OSError, ValueError):  # the terminal or pipe has gone; the run directory has it all
            self._stream.write("".join(f"{PREFIX}{line}".rstrip() + "\n" for line in lines))
            self._stream.flush()


class LiveView(PlainLines):
    """A view that is redrawn in place: state, cap, draw, the trials so far. For a stderr that is ours alone."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._live = Live(console=Console(file=stream), auto_refresh=False, transient=True)
        self._drawn_s = float("-inf")
        self._state: State | None = None
        self._doing = "starting"
        self._baseline: Measurement | None = None
        self._trials: list[Trial] = []
        self._draw = self._cap = "–"
        self._live.start()

    def event(self, event: Event) -> None:
        match event:
            case events.StateEntered(state=state):
                self._state = state
            case events.BaselineMeasured(measurement=measurement):
                self._baseline = measurement
            case events.TrialEnded(trial=trial):
                self._trials.append(trial)
            case _:
                pass
        line = self._words.line(event)
        if line is None:
            return
        self._doing = line
        if isinstance(event, events.Warned | events.Decided | events.DeviceFound):  # worth keeping above the view
            with suppress(OSError, ValueError):
                self._live.console.print(Text(PREFIX + line))

    def sample(self, sample: Sample) -> None:
        if sample.t_s - self._drawn_s < _REFRESH_S:
            return
        self._drawn_s = sample.t_s
        watts = [reading.power_w for reading in sample.readings]
        self._draw = "–" if None in watts else f"{sum(watt or 0.0 for watt in watts):.0f} W"
        node_w = node_power_w(sample)
        self._draw += "" if node_w is None else f", node {node_w:.0f} W"
        self._cap = "/".join(
            dict.fromkeys("–" if r.requested_w is None else f"{r.requested_w:g}" for r in sample.readings)
        )
        with suppress(OSError, ValueError):
            self._live.update(self._view(sample.t_s), refresh=True)

    def close(self) -> None:
        with suppress(OSError, ValueError):
            self._live.stop()

    def _view(self, t_s: float) -> Group:
        label = f" {self._words.power}" if self._words.power else ""
        state = self._state.value if self._state else "–"
        head = Text(f"autocap  {state}  {t_s:.0f} s   cap {self._cap} W   draw {self._draw}{label}")
        head.stylize("bold", 0, 7)
        table = Table(box=None, pad_edge=False)
        for title in ("cap W", "s/iteration", "J/iteration", self._words.metric):
            table.add_column(title, justify="right")
        table.add_column("")
        if self._baseline is not None:
            table.add_row(*_row(self._baseline.cap_w[0], self._baseline), "1", "baseline")
        for trial in self._trials[-_SHOWN_TRIALS:]:
            cost = "–" if trial.cost is None else f"{trial.cost:.4f} ± {trial.cost_stderr:.4f}"
            table.add_row(*_row(trial.cap_w, trial.measurement), cost, trial.state.value)
        return Group(head, Text(self._doing), table)


def _row(cap_w: float, m: Measurement | None) -> list[str]:
    return [f"{cap_w:g}", *(["–"] * 2 if m is None else [f"{m.period_s:.4f}", f"{m.energy_per_iteration_j:.2f}"])]


class Wording:
    """Puts events into words, and remembers what the words need: the metric's name, and whether power is emulated."""

    def __init__(self) -> None:
        self.metric = "cost"
        self.power, self._noun = "", "GPU"
        self._metered_s: float | None = None

    def line(self, event: Event) -> str | None:
        """The sentence for an event; `None` for one that is not worth a line."""
        match event:
            case events.RunStarted(metric=metric):
                self.metric = metric.name
            case events.DeviceFound():
                return self._device(event)
            case events.NodeMetered(t_s=t_s) if self._metered_s in (None, t_s):
                self._metered_s = t_s  # told again at the end, for its refresh period
                return _node(event)
            case events.IdleEstimated(power_w=power_w, seen_s=seen_s):
                return f"at rest the node draws {power_w:.0f} W, as seen over {seen_s:.0f} s before the first iteration"
            case events.ProgressFound(kind=kind):
                return f"counting iterations from {kind}"
            case events.StateEntered(state=state):
                return _STATES.get(state)
            case events.BaselineMeasured(measurement=m):
                return f"baseline: {self._measured(m)}"
            case events.TrialEnded(trial=trial):
                return self._trial(trial)
            case events.WouldTry(caps_w=caps):
                tried = ", ".join(f"{cap:g} W" for cap in caps) or "nothing"
                return f"observing only: a search would begin with {tried}; no cap is set"
            case events.Decided(cap_w=None, reason=reason):
                return f"no cap is kept, the limit found on arrival is put back: {reason}"
            case events.Decided(cap_w=cap_w, reason=reason, expected=None):
                return f"keeping {cap_w:g} W, confirmed: {reason}"
            case events.Decided(cap_w=cap_w, reason=reason, expected=expected):
                return f"keeping {cap_w:g} W, confirmed: {reason}; expected {expected}"
            case events.Warned(text=text):
                return f"warning: {text}"
            case events.LimitRestored(uuid=uuid, restored=False):
                return f"warning: the limit of {uuid} was not put back"
        return None

    def _device(self, event: events.DeviceFound) -> str:
        self.power = "(emulated)" if event.emulated else ""
        gpu = event.gpus[0]
        self._noun = gpu.noun
        count = f"{len(event.gpus)} × " if len(event.gpus) > 1 else ""
        limits = "/".join(dict.fromkeys("unknown" if w is None else f"{w:g} W" for w in event.original_w))
        label = "; its power is emulated, not measured" if event.emulated else ""
        return f"tuning {count}{gpu.name}, limit found on arrival {limits}{label}"

    def _measured(self, m: Measurement) -> str:
        of_gpus = "" if m.gpu is None else f", {self._noun}s {m.gpu.energy_per_iteration_j:.2f} J/iteration"
        return (
            f"{m.period_s:.4f} s/iteration ± {100 * m.period_rel_stderr:.2f} %, {m.energy_per_iteration_j:.2f} "
            f"J/iteration ± {100 * m.energy_rel_stderr:.2f} %{of_gpus} {self.power}".rstrip()
        )

    def _trial(self, trial: Trial) -> str:
        reason = f" ({trial.reason})" if trial.reason else ""
        if trial.measurement is None:
            return f"{trial.cap_w:g} W: failed{reason}"
        verdict = " pruned" if trial.state is TrialState.PRUNED else ""
        cost = f"{self.metric} {trial.cost:.4f} ± {trial.cost_stderr:.4f}"
        return f"{trial.cap_w:g} W:{verdict} {cost}, {self._measured(trial.measurement)}{reason}"


def _node(event: events.NodeMetered) -> str:
    counted = "as its meter reads it" if event.whole else "the GPUs' and this beside them"
    return f"energy is the whole node's, {counted}: {event.source}"


_STATES = {
    State.WAITING: "waiting for steady activity",
    State.BASELINE: "measuring the baseline at the limit found on arrival",
    State.SEARCHING: "searching",
    State.CONFIRMING: "confirming the best cap against the baseline",
}


def for_stream(stream: TextIO, *, quiet: bool, job_output_is_ours_too: bool) -> Quiet:
    """The reporter that suits a stream.

    job_output_is_ours_too: the job writes to the same terminal, so a view redrawn in place would be torn.
    """
    if quiet:
        return Quiet()
    if stream.isatty() and not job_output_is_ours_too and os.environ.get("TERM", "dumb") != "dumb":
        return LiveView(stream)
    return PlainLines(stream)
