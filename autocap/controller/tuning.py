"""The thresholds of this room, by what they are about; read as those of measurement are (measurement/tuning.py)."""

from dataclasses import dataclass

from autocap.config.option import threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Names begin with what they are about."""

    # How soon the next sample is taken
    sample_fastest_s: float = threshold(
        0.02, "s", "between two samples at least; no sensor is known to update more often"
    )
    sample_measuring_s: float = threshold(0.05, "s", "between two samples at least while counters are measured by")
    sample_per_iteration: int = threshold(
        16, "samples", "while counters are measured by: an edge is known to a percent of an iteration"
    )
    sample_longest_s: float = threshold(
        0.25, "s", "between two samples at most while something is measured: the driver's flags are momentary"
    )
    sample_fast_counter_s: float = threshold(0.05, "s", "between the moves of an energy counter that is never old")
    sample_by_fast_counter_s: float = threshold(0.1, "s", "between two samples at least by a counter that is never old")
    sample_held_s: float = threshold(
        0.8, "s", "between two samples while a cap is held: two beats of the watchdog, which wake us anyway"
    )
    sample_node_s: float = threshold(
        0.4, "s", "between two samples while a cap is held beside a meter of the machine without a counter"
    )

    # How long a job is waited for
    wait_first_iteration: float = threshold(4.0, "times", "the usual wait, beyond it, for the first iteration")

    # The first look at a job, before its baseline is known well
    baseline_rough_iterations: int = threshold(2, "iterations", "whole ones, of a rough baseline")
    baseline_rough_s: float = threshold(1.0, "s", "shortest rough baseline")
    baseline_rough_alike: float = threshold(
        0.1, "relative", "the last iteration against those before: the first may take many times as long"
    )
    baseline_rough_floor: float = threshold(
        0.03, "relative error", "of a rough baseline at least, which nobody measured: it may be unlike the next minute"
    )
    baseline_most_failed: int = threshold(
        3, "baselines", "that could not be measured in a row before the tuning ends; each waits for a steady job"
    )
    baseline_rough_draw: float = threshold(0.4, "of the limits", "below which a job may not train yet")
    period_trial_below_draw: float = threshold(
        0.85, "mean draws", "of the cap that proves a period in the power: the clock falls by some per cent", "period"
    )
    period_trial_draw_s: float = threshold(
        5.0, "s", "over which the mean draw is taken for the trial that proves a period", "period"
    )
    period_trial_cycles: float = threshold(40.0, "periods", "that a trial which proves a period lasts", "period")
    period_trial_least_s: float = threshold(10.0, "s", "that a trial which proves a period lasts at least", "period")
    period_trial_most_s: float = threshold(90.0, "s", "that a trial which proves a period lasts at most", "period")

    # What a search may cost
    search_trials: int = threshold(5, "trials", "with the confirmation, that a search is taken to need at least")
    search_likely_trials: int = threshold(8, "trials", "of a search whose strategy does not say")
    search_confirming_windows: int = threshold(3, "windows", "that a confirmation is taken to need")
    search_long_trial: float = threshold(
        1.1, "limits on a trial", "from which a trial is long, so that how long a search takes is worth a word"
    )
    search_paid_back: float = threshold(2.0, "searches", "that what is left of the job must last for one to begin")
    search_most_again: int = threshold(3, "times", "that what a confirmation shows may send a search on")
    trial_edge_iterations: int = threshold(
        2, "iterations", "of a trial that do not count: the one that the change cuts, and one more"
    )
    trial_fresh_s: float = threshold(90.0, "s", "since a trial ended that still says how its cap does now")
    slowdown_saved_sigmas: float = threshold(
        2.0, "standard errors", "of what a trial may lose, saved up before it under --max-slowdown", "scenarios"
    )
    slowdown_unknown: float = threshold(
        1.5, "times", "as long as at arrival an iteration is taken to be at a setting that nothing is known of"
    )
    ceiling_slowdown: float = threshold(
        0.01, "relative", "share of the time that a search under a ceiling may cost", "scenarios --ceilings"
    )
    ceiling_at_once_s: float = threshold(
        0.6, "s", "that it may cost at once: both are two points of the first minute", "scenarios --ceilings"
    )

    # When the baseline is measured again during a search
    revisit_every_s: float = threshold(
        120.0, "s", "after which the baseline is measured again: a slow drift cancels", "scenarios"
    )
    revisit_every_trials: int = threshold(4, "trials", "after which it is measured again", "scenarios")
    revisit_rough_patience: float = threshold(
        2.0, "times", "as long as usual before a rough one: it is measured in any case before a cap is kept"
    )
    revisit_still: float = threshold(
        0.01, "relative", "a baseline that has moved by less is measured half as often from then on", "scenarios"
    )
    revisit_warmed_up: float = threshold(
        2.0, "times", "as long at a rough baseline as later, from which the job was warming up then", "scenarios"
    )
    revisit_wanders: float = threshold(
        0.05, "relative", "a baseline that has moved by more is measured before each trial", "scenarios --noisy"
    )
    revisit_fewest: int = threshold(
        3, "looks", "that tell how far the baseline of a machine that may wander is from itself", "scenarios --noisy"
    )

    # A trial that may have taken several iterations for one
    miscount_time: float = threshold(
        1.3, "times", "as long as at the next higher cap: from 4/3 on it may be a multiple of an iteration"
    )
    miscount_energy: float = threshold(
        1.1, "times", "the energy there: time that grows for want of power takes little more, but off a cliff"
    )

    # Whether a cap is better than the baseline
    confirm_rounds: int = threshold(
        3, "rounds", "of a confirmation, after which it has a verdict unless more may decide it"
    )
    confirm_most_rounds: int = threshold(
        12, "rounds", "of a confirmation whose verdict may come with more", "scenarios --noisy"
    )
    confirm_most_anew: int = threshold(
        4, "times", "that a confirmation begins anew, as the job gets faster: it warms up", "scenarios"
    )
    confirm_anew_wandering: float = threshold(
        1.3, "times", "as fast as just before, where the machine wanders, for that", "scenarios"
    )
    confirm_rounds_beside_others: int = threshold(
        3, "rounds", "of a confirmation at least, where a burst of other work may take up a window", "scenarios --noisy"
    )
    confirm_unsure: float = threshold(
        1.5, "times", "as large as it is an error may seem by a few windows", "scenarios --noisy"
    )
    confirm_known_time: float = threshold(
        0.1, "relative", "two standard errors of the time of a cap that is kept are no more", "scenarios --noisy"
    )
    confirm_baseline_iterations: int = threshold(
        4, "iterations", "of a window of the baseline between two of a cap, where they scatter"
    )
    confirm_baseline_fewest: int = threshold(
        2, "iterations", "of such a window where they hardly do: each second there costs most", "tables --spent"
    )
    confirm_baseline_error: float = threshold(
        0.007, "relative error", "of its time that does, as the cap's own iterations scatter", "tables --spent"
    )
    confirm_baseline_s: float = threshold(
        1.5, "s", "after which a window of the baseline may end early: each second there costs most"
    )
    confirm_clear_sigmas: float = threshold(
        3.0, "standard errors", "that a cap saves, for a window of the baseline to end early"
    )
    confirm_coarsest_error: float = threshold(
        0.04, "relative error", "of a window of the baseline that ends early, for what is stated in the end"
    )
    confirm_window_time_error: float = threshold(
        0.05, "relative error", "of a window's time: three rounds know it to 8 points, √(2/3) of it twice"
    )
    confirm_close_s: float = threshold(240.0, "s", "that a window which is to have a small error may take at least")

    # A job that ends while a cap is searched for
    end_clear_sigmas: float = threshold(3.0, "standard errors", "that a cap is better by, to be kept unconfirmed")
    end_known_time: float = threshold(0.1, "relative error", "of its time at most, for that")
    end_ample_confirmations: float = threshold(3.0, "confirmations", "in which one surely ends", "scenarios --noisy")
    end_likely_trials: int = threshold(5, "trials", "of a search whose strategy does not say, when the job ends")
    end_look_again: float = threshold(2.0, "times", "what seemed left, after which its cap is looked at again")
    end_spare_time: float = threshold(1.2, "times", "as long as the search a job is advised to be")
    end_trial_parts: float = threshold(10.0, "parts", "of what is left of a job, one of which a trial may take")
    end_trial_least_s: float = threshold(3.0, "s", "that a trial may take, however little is left")
    end_look_every_s: float = threshold(1.0, "s", "between two looks whether something is to be kept")

    # While a cap is held
    hold_retry_s: float = threshold(
        300.0, "s", "until another try after a search that was disturbed, or ended in doubt"
    )
    hold_change_lasts: float = threshold(
        0.25, "searches", "as long as the last took, that a change must last: others' work passes", "scenarios --noisy"
    )
    hold_check_s: float = threshold(900.0, "s", "until what is held is first held against the baseline again")
    hold_check_windows: float = threshold(
        150.0, "windows", "of the baseline until then, so that it costs a few thousandths at most"
    )
    hold_window_iterations: float = threshold(
        8.0, "iterations", "that a window of the baseline has for this; a rough one has fewer"
    )
    ceiling_same_cap: float = threshold(
        0.01, "relative", "under which a measurement goes on: a budget moves by a watt or two", "scenarios --ceilings"
    )
    ceiling_known_error: float = threshold(
        0.001, "relative error", "of time at which a cap under a ceiling is known: others' shares need it", "budget"
    )
    close_look_error: float = threshold(
        0.0005, "relative error", "that a look at a cap which follows a price aims at", "prices"
    )
    close_look_s: float = threshold(600.0, "s", "that a look at a cap which follows a price may take", "prices")
    close_look_every_s: float = threshold(
        604800.0, "s", "after which a cap that follows a price is looked at once more: a week", "prices"
    )

    # Caps that follow what electricity costs
    follow_allowed_sigmas: float = threshold(
        2.0, "standard errors", "of its time that a known cap is within the limit on slowdown", "prices"
    )
    follow_clear_sigmas: float = threshold(
        3.0, "standard errors", "of a window that a cap to be confirmed should save", "prices"
    )
    follow_finest_error: float = threshold(
        0.001, "relative error", "that a window of its confirmation aims at, at the finest", "prices"
    )
    follow_coarsest_error: float = threshold(
        0.007, "relative error", "that a window of its confirmation aims at, at the coarsest", "prices"
    )
    follow_confirming_windows: float = threshold(
        3.0, "windows", "of the baseline that its confirmation costs", "prices"
    )
    follow_least_error: float = threshold(
        0.0005, "relative error", "of anything that was measured at another hour", "prices"
    )
    follow_least_s: float = threshold(60.0, "s", "of an interval at least, where nobody knows its end", "prices")
    follow_least_weight: float = threshold(0.001, "weight", "of time in the metric at least, as a divisor", "prices")
    follow_long_s: float = threshold(900.0, "s", "of an interval in which a trial costs a hundredth or two", "prices")
    follow_widest_gap: float = threshold(1.1, "times", "apart that two tried caps may be, with none between", "prices")
    deadline_reserve: float = threshold(1.01, "times", "as long as the baseline says the rest of a job takes", "prices")
    deadline_least_share: float = threshold(
        0.1, "of its time", "that a job with many pauses is taken to train", "prices"
    )

    # What is known of a search
    search_most_failed: int = threshold(3, "trials", "failed in a row, after which a search ends early")
    slowdown_finest_error: float = threshold(
        0.0025, "relative error", "of time, beyond which a limit on slowdown asks for no finer one"
    )
    trial_repeat_error: float = threshold(0.5, "of the target error", "of a cap that is asked for again")
    ceiling_curve_error: float = threshold(
        0.005, "relative error", "of time and energy at a ceiling that need no trial", "budget"
    )
    ceiling_same: float = threshold(
        0.02, "of a ceiling", "less is the same one: budgets move by a watt or two all the time", "budget"
    )
    held_close_error: float = threshold(0.001, "relative error", "of time, of a cap that was looked at closely")
    held_beside: float = threshold(0.01, "of a cap", "what was held or looked at so near later stands for it")
    curve_unknown_error: float = threshold(
        0.2, "relative error", "of caps that a curve does not know: it keeps them from counting beside measured ones"
    )
    curve_between_error: float = threshold(
        0.25, "of the way", "between two points of a curve: the error that a straight line adds in the middle"
    )
    curve_top_share: float = threshold(0.95, "of the highest cap", "a point below that tells the slope at the top")
    curve_alike_length: float = threshold(0.15, "ln cap", "over which what a strategy has fitted is off alike")

    # A curve bent to what caps have shown while they were held: a Gaussian process over ln cap
    curve_gp_length: float = threshold(0.15, "ln cap", "over which a curve is off alike", "budget")
    curve_gp_even_length: float = threshold(
        0.03, "ln cap", "over which the errors that a curve states are evened out", "budget"
    )
    curve_gp_least_error: float = threshold(
        0.001, "relative error", "of a curve, and of what was held: some of both is more than noise", "budget"
    )
    curve_gp_far_sigmas: float = threshold(
        4.0, "standard errors", "off the curve, from which what was held counts as less certain", "budget"
    )
    curve_gp_low_slope: float = threshold(
        0.5, "per ln cap", "that the slope below the lowest known cap is off by", "budget"
    )
    curve_gp_low_bend: float = threshold(
        10.0, "per ln cap", "that the variance of that slope grows by on the way down; off a cliff", "budget"
    )
    curve_other_job_time: float = threshold(
        0.1, "relative", "from which a curve is another job's: a warm card is off by less", "budget"
    )
    curve_agree_near: float = threshold(
        0.05, "ln cap", "between two caps held that may agree on what a curve is off by", "budget"
    )
    curve_agree_times: float = threshold(
        2.0, "times", "as far off at one of them as at the other, if they agree", "budget"
    )

    # How time grows below the lowest known cap: as a power of 1/cap
    low_exponent_usual: float = threshold(1.0, "exponent", "of compute-bound work", "budget")
    low_exponent_unusual: float = threshold(0.5, "exponent", "standard deviation of other work from that", "budget")
    low_exponent_off: float = threshold(
        0.3, "exponent", "standard deviation below from what it came to; 0.23 on the published curves", "budget"
    )
    low_exponent_near: float = threshold(1.06, "lowest caps", "from which down the exponent is seen", "budget")
    low_exponent_least: float = threshold(0.5, "exponent", "lowest: a cap that does not bind yet will", "budget")
    low_exponent_most: float = threshold(3.0, "exponent", "highest: off the steepest cliffs measured", "budget")

    # A cap per GPU
    per_gpu_fewest_rounds: int = threshold(3, "rounds", "for a verdict on caps per GPU", "pergpu")
    per_gpu_most_rounds: int = threshold(6, "rounds", "after which there is a verdict", "pergpu")
    per_gpu_most_trials: int = threshold(8, "trials", "of caps per GPU in one search", "pergpu")
    per_gpu_trial_error: float = threshold(0.0015, "relative error", "of time and energy in a trial's window", "pergpu")
    per_gpu_confirming_error: float = threshold(0.001, "relative error", "of both in a window that confirms", "pergpu")
    per_gpu_exact_error: float = threshold(
        0.0008, "relative error", "of time at which a verdict on caps per GPU needs no more rounds", "pergpu"
    )
    per_gpu_negligible_time: float = threshold(
        0.0005, "relative", "more time that is not worth telling from noise", "pergpu"
    )
    per_gpu_sigmas: float = threshold(2.0, "standard errors", "from which time or energy differ beyond noise", "pergpu")
    per_gpu_waiting_low: float = threshold(
        0.3, "of computing draw", "of a waiting card at first: an idle one draws an eighth", "pergpu"
    )
    per_gpu_waiting_high: float = threshold(
        0.6, "of computing draw", "of a waiting card once steps get nowhere: it may spin", "pergpu"
    )
    per_gpu_least_busy: float = threshold(0.1, "of the time", "that a card computes at least", "pergpu")
    per_gpu_farthest_step: float = threshold(0.15, "ln cap", "in one step of a card's cap", "pergpu")
    per_gpu_usual_draw: float = threshold(0.9, "exponent", "of draw over cap, where trials tell none", "pergpu")
    per_gpu_usual_time: float = threshold(0.35, "exponent", "of time over 1/cap, where trials tell none", "pergpu")
    per_gpu_least_draw: float = threshold(0.5, "exponent", "of draw, to be believed of a few noisy trials", "pergpu")
    per_gpu_most_draw: float = threshold(1.1, "exponent", "of draw, to be believed of them", "pergpu")
    per_gpu_least_time: float = threshold(0.1, "exponent", "of time, to be believed of them", "pergpu")
    per_gpu_most_time: float = threshold(1.0, "exponent", "of time, to be believed of them", "pergpu")
    per_gpu_least_error: float = threshold(0.001, "relative error", "of a window in that fit at least", "pergpu")
    per_gpu_draw_curvature: float = threshold(
        0.1, "per ln² cap", "of ln draw, as the published curves have it", "pergpu"
    )
    per_gpu_time_curvature: float = threshold(
        1.0, "per ln² cap", "of ln time, as the published curves have it", "pergpu"
    )


TUNING = Tuning()
