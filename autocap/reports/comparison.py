"""Two runs side by side: where their settings differ, and what the caps they ended with cost, one against the other."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from autocap.records import Measurement
from autocap.reports.document import Document, Sentences, Table
from autocap.reports.summary.gains import relative_to
from autocap.reports.summary.record import Changes, Summary
from autocap.reports.summary.summarise import in_percent, metric_in
from autocap.reports.wording import run as wording
from autocap.reports.wording.numbers import change, common_caps, with_rel_error, with_unit

_ALIKE = 1.25  # of two times per iteration at the limits found on arrival, where what an iteration is was inferred


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A setting that is not the same in both."""

    setting: str
    first: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """differences: of the settings. obstacles: why the numbers cannot be compared, none where they can.

    held: energy, time and metric per iteration at the caps that the second run ended with against those of the first,
    percent, errors of both included; at_baseline: the same at the limits found on arrival. `None` where they cannot
    be compared; the metric is, where both minimised the same.
    """

    differences: tuple[Difference, ...]
    obstacles: tuple[str, ...]
    held: Changes | None
    at_baseline: Changes | None


def held(summary: Summary) -> Measurement | None:
    """What a run ended with, as measured: the kept cap or else the baseline; `None` where that was not measured."""
    return summary.baseline if summary.chosen is None else summary.chosen.measurement


def compare(first: Summary, second: Summary) -> Comparison:
    """The second run against the first. Raises RunDirectoryError for a metric that this version does not know."""
    obstacles = tuple(_obstacles(first, second))
    return Comparison(
        differences=tuple(_differences(first, second)),
        obstacles=obstacles,
        held=None if obstacles else _changes(held(first), held(second), first, second),
        at_baseline=None if obstacles else _changes(first.baseline, second.baseline, first, second),
    )


def document(names: tuple[str, str], first: Summary, second: Summary, found: Comparison) -> Document:
    """The comparison in words and tables. names: of the runs."""
    return Document(headline="Two runs", body=tuple(_body(names, first, second, found)))


def _body(names: tuple[str, str], first: Summary, second: Summary, found: Comparison) -> Iterator[Sentences | Table]:
    yield Sentences(
        lines=tuple(
            f"{letter}: {name}, begun {one.started_at}" + (f" ({wording.EMULATED})" if one.emulated else "")
            for letter, name, one in zip("AB", names, (first, second), strict=True)
        )
    )
    if found.differences:
        pairs = [((one.setting, "A", one.first), ("", "B", one.second)) for one in found.differences]
        rows = tuple(row for pair in pairs for row in pair)
        yield Table(heading="Settings that differ", titles=("setting", "run", ""), rows=rows, left=(0, 1))
    else:
        yield Sentences(lines=("their settings are the same",))
    for reason in found.obstacles:
        yield Sentences(lines=(f"not to be compared: {reason}",))
    yield Table(
        heading=f"What they came to{' (emulated)' if any(one.modelled for one in (first, second)) else ''}",
        titles=("", "A", "B", "B against A"),
        rows=tuple(_rows(first, second, found)),
        left=(0,),
    )
    if found.held is not None:
        said = (
            "per iteration, at the caps that they ended with; the metric is 1 at each run's own baseline, and of B "
            "against A at what A ended with; errors are those of the measurements, without what else changes from day "
            "to day"
        )
        yield Sentences(lines=(second.knob.said(first.knob.said(said)),))


def _settings(one: Summary) -> Iterator[tuple[str, str]]:
    options = ", ".join(f"{option.name}={option.value}" for option in one.strategy.options)
    found = [] if one.device is None else [gpu.cap_original_w for gpu in one.device.gpus]
    known = [setting for setting in found if setting is not None]
    yield "command", shlex.join(one.command)
    yield "device", _device(one)
    yield "knob", one.knob.name
    yield (
        "limit found" if one.knob.is_power_limit else "setting found",
        with_unit(known, one.knob) if known else "unknown",
    )
    yield "metric", wording.asked_for(one.metric)
    read = (None, None) if one.books is None else (one.books.price_source, one.books.carbon_source)
    for name, rate, source in (
        ("energy price", one.rates.energy_price, read[0]),
        ("hour price", one.metric.hour_price, None),
        ("carbon price", one.metric.carbon_price, None),
        ("CO₂ per kWh", one.rates.carbon_g_per_kwh, read[1]),
    ):
        yield name, f"{rate:g}" if rate is not None else "none" if source is None else f"read from {source}"
    yield "strategy", f"{one.strategy.name} ({options})" if options else one.strategy.name
    yield "iterations", "none" if one.progress is None else f"from {one.progress.kind}"
    yield "energy", _counted(one)
    yield "started by", one.mode
    yield "autocap", one.autocap_version


def _device(one: Summary) -> str:
    return f"{wording.device(one)} (emulated)" if one.emulated else wording.device(one)


def _counted(one: Summary) -> str:
    if one.node is None:
        return "of the device"
    return f"of the node, from {one.node.source}"


def _differences(first: Summary, second: Summary) -> Iterator[Difference]:
    for (name, one), (_, other) in zip(_settings(first), _settings(second), strict=True):
        if one != other:
            yield Difference(setting=name, first=one, second=other)


def _obstacles(first: Summary, second: Summary) -> Iterator[str]:
    """What makes an iteration, or its energy, of one another matter than of the other."""
    if first.command != second.command:
        yield "the commands differ"
    if _device(first) != _device(second):
        yield f"the devices differ: {_device(first)} and {_device(second)}"
    if _counted(first) != _counted(second):
        yield f"one counts the energy {_counted(first)}, the other {_counted(second)}"
    kinds = [one.progress.kind if one.progress else "nothing" for one in (first, second)]
    if kinds[0] != kinds[1]:
        yield f"iterations are counted from {kinds[0]} and from {kinds[1]}"
    elif kinds[0] == "speed":
        yield "iterations from speed are not the same in two runs"
    for letter, one in (("A", first), ("B", second)):
        if held(one) is None or one.baseline is None:
            yield f"{letter} has no measurement of what it ended with"
    if kinds[0] == kinds[1] not in ("steps", "speed") and first.baseline is not None and second.baseline is not None:
        ratio = second.baseline.period_s / first.baseline.period_s
        if not 1 / _ALIKE <= ratio <= _ALIKE:
            yield (
                f"an iteration from {kinds[0]} takes {first.baseline.period_s:.4g} s in A and "
                f"{second.baseline.period_s:.4g} s in B, so it may not be the same work"
            )


def _changes(
    first: Measurement | None, second: Measurement | None, of_first: Summary, of_second: Summary
) -> Changes | None:
    if first is None or second is None:
        return None
    energy, time, metric = relative_to(second, first, metric_in(of_first))
    same = of_first.metric == of_second.metric
    return Changes(**in_percent(energy=energy, time=time, metric=metric if same else None))


def _rows(first: Summary, second: Summary, found: Comparison) -> Iterator[tuple[str, ...]]:
    both = (first, second)
    name = first.metric.name if first.metric == second.metric else "metric"
    at_end, at_first = [held(one) for one in both], [one.baseline for one in both]
    of_limits = first.knob.is_power_limit and second.knob.is_power_limit
    yield "kept W" if of_limits else "kept", *(_kept(one, bare=of_limits) for one in both), ""
    yield "J/iter", *map(_energy, at_end), _against(found.held, "energy")
    yield "s/iter", *map(_time, at_end), _against(found.held, "time")
    yield name, *map(_metric, both), _against(found.held, "metric")
    yield "baseline J/iter", *map(_energy, at_first), _against(found.at_baseline, "energy")
    yield "baseline s/iter", *map(_time, at_first), _against(found.at_baseline, "time")


def _against(found: Changes | None, name: str) -> str:
    if found is None:
        return "–"
    return change(getattr(found, f"{name}_pct"), getattr(found, f"{name}_stderr_pct"))


def _kept(one: Summary, *, bare: bool) -> str:
    if one.chosen is None:
        return "none"
    return common_caps(one.chosen.setting) if bare else with_unit(one.chosen.setting, one.knob)


def _energy(one: Measurement | None) -> str:
    return "–" if one is None or one.is_relative else with_rel_error(one.energy_per_iteration_j, one.energy_rel_stderr)


def _time(one: Measurement | None) -> str:
    return "–" if one is None or one.is_relative else with_rel_error(one.period_s, one.period_rel_stderr)


def _metric(one: Summary) -> str:
    """Of the cap that was kept, against the run's own baseline."""
    if one.chosen is None:
        return "–" if one.baseline is None else "1"
    return wording.metric_of(one.versus_baseline)
