"""What a run says of the machine around its GPUs: its idle share, and its energy as another machine would have it."""

import math

from autocap.events import IdleEstimated, NodeMetered
from autocap.records import Measurement
from autocap.reports.summary.record import ESTIMATED, GIVEN, NodeSummary, StandardEnergy


def node_summary(
    metered: NodeMetered | None,
    estimated: IdleEstimated | None,
    baseline: Measurement | None,
    kept: Measurement | None,
) -> NodeSummary | None:
    """The summary of the machine; `None` where only the GPUs count. kept: the cap that was kept, as measured."""
    if metered is None:
        return None
    idle_w, source, seen_s = metered.idle_w, GIVEN, None
    if idle_w is None and estimated is not None:
        idle_w, source, seen_s = estimated.power_w, ESTIMATED, estimated.seen_s
    standard: tuple[StandardEnergy, ...] = ()
    counted = baseline is not None and not baseline.is_relative
    if idle_w is not None and metered.standard_idle_w is not None and counted:
        excess_w = idle_w - metered.standard_idle_w
        standard = tuple(standardised(one, excess_w) for one in (baseline, kept) if one is not None)
    return NodeSummary(
        source=metered.source,
        whole=metered.whole,
        refresh_s=metered.refresh_s,
        idle_w=idle_w,
        idle_source=None if idle_w is None else source,
        idle_seen_s=seen_s,
        idle_share=idle_w / baseline.power_w if idle_w is not None and baseline is not None else None,
        standard_idle_w=metered.standard_idle_w,
        standard=standard,
    )


def standardised(measurement: Measurement, excess_w: float) -> StandardEnergy:
    """Energy per iteration without what the machine draws at rest beyond another, e - excess_w * t.

    excess_w: the idle power of this machine less that of the other, watts. As Tripp et al. 2024 (BUTTER-E, section 4)
    standardise the energy of runs on different nodes; errors to first order.
    """
    energy_j, seconds = measurement.energy_per_iteration_j, measurement.period_s
    error_j = energy_j * measurement.energy_rel_stderr
    shift_j = excess_w * seconds * measurement.period_rel_stderr
    variance = error_j**2 + shift_j**2 - 2 * measurement.time_energy_corr * error_j * shift_j
    return StandardEnergy(
        setting=measurement.setting,
        energy_per_iteration_j=energy_j - excess_w * seconds,
        stderr_j=math.sqrt(max(0.0, variance)),
    )
