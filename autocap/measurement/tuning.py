"""The thresholds of this room, by what they are about.

They are read where they are used, as `TUNING.pause_low_draw`, and kept under no other name, so that a bench which
tries others before its jobs begin has changed all of them. Nothing of the product does.
"""

from dataclasses import dataclass

from autocap.config.option import threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Names begin with what they are about."""

    # When a job's activity is steady
    steady_span_iterations: int = threshold(
        4, "iterations", "least length of each of the two spans that are held against each other"
    )
    steady_span_s: float = threshold(1.0, "s", "least length of each of these two spans")
    steady_apart: float = threshold(
        0.1, "relative", "spans whose median times, and mean powers, differ by no more are alike"
    )
    steady_slow: float = threshold(
        1.5, "median times", "longer iterations before are the tail of the start-up and left out of the baseline"
    )
    steady_computing_draw: float = threshold(
        1.5, "lowest draws", "mean draw from which a device computes; of one at rest it is 1"
    )
    steady_fair_iterations: int = threshold(16, "iterations", "in so many a job may be expected to become steady")

    # A window at a cap
    probe_look_growth: float = threshold(
        1.1, "times", "a window grows before it is looked at again: looking costs, and stops on lucky moments"
    )
    probe_retakes: int = threshold(3, "windows", "begun anew after disturbances, before the trial fails")
    probe_rough_error: float = threshold(
        0.01, "relative error", "of the time, beyond which a window is rough: a sensor has no part in it"
    )
    probe_close_paces: float = threshold(
        2.0, "paces", "that a window may take which is not rough, but not as exact as wanted either", "tables --spent"
    )
    probe_level_paces: float = threshold(4.0, "paces", "that a job which gets faster or slower is waited for")
    probe_calm_s: float = threshold(1.0, "s", "after a disturbance until samples count again")
    probe_short_gap_s: float = threshold(3.0, "s", "without a reading, in which a job most likely does as before")
    probe_slowest_iteration: float = threshold(
        4.5, "times", "as long as at arrival an iteration takes at most, at the floor of some cards"
    )
    probe_node_updates: int = threshold(
        2, "readings", "of the machine until a cap has settled: the first may average over what was before"
    )
    window_least_s: float = threshold(1.0, "s", "least length of a window, however exact it is")
    window_bursts: float = threshold(
        2.0, "times", "as long as the longest burst of other work a window is at least", "scenarios --noisy"
    )
    window_drift: float = threshold(0.01, "relative", "difference of two halves of a window below which it is level")
    window_half_fewest: int = threshold(4, "iterations", "of each half that tells whether a window is level")
    window_parts: float = threshold(
        4.0, "parts", "of the time a job has run, one a window: it may end soon", "scenarios --noisy"
    )
    window_parts_wandering: float = threshold(
        10.0, "parts", "of that time where the machine wanders: turns tell more", "scenarios --noisy"
    )
    window_pace_least_s: float = threshold(
        5.0, "s", "that a window of a young job may take all the same", "scenarios --noisy"
    )
    window_quick_trial_s: float = threshold(
        10.0, "s", "limit on a trial, as --quick sets it, up to which windows are rough on any machine"
    )
    baseline_error_share: float = threshold(
        0.5, "target errors", "of a baseline under --max-slowdown, as all is held against it"
    )
    baseline_shared_error: float = threshold(
        0.001, "relative error", "of the time of a baseline that is compared with those of other jobs", "budget"
    )
    baseline_shared_s: float = threshold(
        90.0, "s", "that a baseline which is compared with those of other jobs may take at least", "budget"
    )

    # Pauses of a job: a validation pass, a checkpoint, a stall
    pause_longer: float = threshold(
        1.0, "usual iterations", "beyond its own time, from which an iteration holds something else"
    )
    pause_spreads: float = threshold(8.0, "spreads", "beyond the median, up to which an iteration is long by scatter")
    pause_most_long: float = threshold(0.15, "of iterations", "may be long; where more are, that is how the job goes")
    pause_usual_iterations: int = threshold(64, "iterations", "the last ones, which say what is usual")
    pause_fewest_iterations: int = threshold(
        4, "iterations", "from which on something is usual, and known at a new cap"
    )
    pause_overdue: float = threshold(3.0, "usual iterations", "without an end, after which the job does something else")
    pause_overdue_at_new_cap: float = threshold(
        6.0, "usual iterations", "just after a change: a low cap may slow a job down four times"
    )
    pause_shortest_s: float = threshold(1.0, "s", "shortest stretch that is a pause")
    pause_long_s: float = threshold(5.0, "s", "of a pause after which the limit found on arrival holds again")
    pause_low_draw: float = threshold(0.6, "usual draws", "below which a device does not train")
    pause_draw_weight: float = threshold(0.02, "weight", "of a new reading in the usual draw")
    pause_most_in_a_row: int = threshold(
        3, "long iterations", "in a row; more of them are how the job goes from here on"
    )
    pause_many_iterations: float = threshold(
        8.0, "iterations", "of one stretch from which a second long one is no pause: samples are far apart"
    )

    # Whether the workload has changed while a cap is held
    drift_allowance: float = threshold(
        0.045, "ln", "taken off every iteration: half of a change of 10 %, a little less", "scenarios"
    )
    drift_reference_sigmas: float = threshold(
        3.0, "standard errors", "of the reference, taken off where that is more: they are no change", "scenarios"
    )
    drift_alarm: float = threshold(
        1.0, "ln", "in sum that are an alarm: 20 iterations of a change of 10 %", "scenarios"
    )
    drift_noise_alarm: float = threshold(
        200.0, "variances", "that are an alarm where they are more: scatter alone raises none", "scenarios"
    )
    drift_iteration_most: float = threshold(
        0.4, "ln", "that an iteration counts for at most: one long iteration is no change", "scenarios"
    )
    drift_block_most: float = threshold(
        0.6, "ln", "that a block of iterations adds at most: its reading may be older than it says", "scenarios"
    )
    drift_block_s: float = threshold(0.5, "s", "shortest block of iterations")
    drift_block_readings: float = threshold(
        8.0, "longest gaps", "between readings of power, in the shortest block without a counter", "scenarios"
    )
    drift_block_iterations: float = threshold(
        4.0, "iterations", "of the shortest block where readings of a counter are far apart", "scenarios"
    )
    drift_readings_apart: float = threshold(
        0.25, "iterations", "between readings that are far apart: power runs up and down within one", "scenarios"
    )
    drift_queued_iterations: float = threshold(8.0, "iterations", "that a host may be behind or ahead of a device")
    drift_fewest_blocks: int = threshold(8, "blocks", "that tell the usual scatter", "scenarios")
    changed_least: float = threshold(
        0.05, "relative", "change of time or energy at the same caps that is another workload"
    )
    changed_sigmas: float = threshold(3.0, "standard errors", "that such a change of time or energy exceeds")
    impossible_exponent: float = threshold(
        4.0, "power of the cap", "that time falls with at most; 3.3 was measured, over a cliff"
    )

    # Sensors
    sensor_sticks_every: int = threshold(3, "readings", "of which one is like the one before: such a sensor sticks")
    sensor_sticks_unnoticed_s: float = threshold(
        6.0, "s", "that a sensor sticks unnoticed; where it sticks for longer, readings are gaps"
    )
    counter_still_s: float = threshold(
        1.0, "s", "that an energy counter may stand still; none does for so long that counts"
    )
    counter_left_out: float = threshold(
        0.5, "of the power's sum", "below which a counter has stood still, and has left out the rest"
    )
    idle_percentile: float = threshold(
        2.0, "%", "of the power seen at rest, as Tripp et al. 2024 take it over months of a node"
    )
    idle_least_s: float = threshold(1.0, "s", "that a machine at rest is looked at")
    proxy_clock_error: float = threshold(
        0.005, "relative error", "of the ratio of two SM clocks, which come in steps of about 1 % and wander"
    )

    # Other work on the machine
    burst_cells: int = threshold(48, "cells", "that a window is looked at in", "scenarios --noisy")
    burst_fewest_cells: int = threshold(
        8, "cells", "that tell their own scatter, and that bursts leave of a window", "scenarios --noisy"
    )
    burst_sigmas: float = threshold(
        5.0, "standard errors", "by which a stretch is a burst: scatter alone comes to 4", "scenarios --noisy"
    )
    burst_longer: float = threshold(
        0.06, "ln", "by which a stretch is a burst: a machine drifts by less", "scenarios --noisy"
    )
    burst_least_left: float = threshold(0.35, "of the cells", "that a burst leaves of a window", "scenarios --noisy")
    burst_window_longer: float = threshold(
        0.06, "ln", "by which a window beside others at its caps lies in a burst", "scenarios --noisy"
    )
    burst_window_sigmas: float = threshold(
        3.0, "standard errors", "by which a window beside others at its caps lies in a burst", "scenarios --noisy"
    )
    burst_window_fewest: int = threshold(
        3, "windows", "that tell whether one of them lies in a burst", "scenarios --noisy"
    )
    wander_apart: float = threshold(
        0.06, "ln", "between two windows of the same caps, between which a burst has come or gone", "scenarios --noisy"
    )
    wander_apart_sigmas: float = threshold(
        5.0, "standard errors", "between two windows of the same caps, the same", "scenarios --noisy"
    )
    wander_fewest: int = threshold(
        3, "distances", "between windows that tell how far a machine wanders", "scenarios --noisy"
    )
    wander_rough_scatter: float = threshold(
        0.05,
        "of an iteration's time",
        "that iterations scatter by, as far as a rough window's error tells, where others may use the machine",
        "scenarios --noisy",
    )
    wander_rough_windows: int = threshold(
        2, "windows", "that are rough where a machine wanders: one may be a changed job", "scenarios --noisy"
    )
    paired_fewest: int = threshold(
        3, "pairs", "of neighbours whose ratios say more than the levels of all windows do", "scenarios --noisy"
    )


TUNING = Tuning()
