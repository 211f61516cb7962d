"""Every setting of a run, its default, and the option that gives it, in one place."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from autocap.config import values
from autocap.config.option import CommandOption, Group, TakenSetting
from autocap.knobs import POWER_LIMIT
from autocap.metrics import METRICS, NO_RATES, Metric, Rates

METRIC = "eds"
TARGET_STDERR = 0.005
TRIAL_SECONDS = 60.0
WAIT_SECONDS = 120.0
# With --quick, for whatever of the three is not given.
QUICK_TARGET_STDERR, QUICK_TRIAL_SECONDS, QUICK_WAIT_SECONDS = 0.02, 5.0, 45.0
STEPS_WITHIN_SECONDS = 20.0  # how long `auto` waits for a step before it makes do with calls or a period in the power
CALLS_WITHIN_SECONDS = 10.0  # how long it waits for a call, where calls can be counted, before it takes that period
PERIOD_WITHIN_SECONDS = 60.0  # how long `attach` looks for a period before it takes the SM clock for the speed
PERIOD_AWAITED_SECONDS = 600.0  # the same, as long as a long one shows that needs more cycles
STRATEGY = "model"
NODE_POWER = "none"
RETUNE = "auto"
DEVICE = "auto"
VIA = "auto"
PROGRESS = "auto"
PROGRESS_KINDS = {  # what --progress may be
    "run": ("auto", "steps", "calls", "calls:LIBRARY:SYMBOL", "period", "regex:PATTERN", "speed"),
    "attach": ("auto", "calls", "calls:LIBRARY:SYMBOL", "period", "speed"),
    "tune": ("auto", "steps", "period", "speed"),  # the job counts its own steps
}
EMULATED_PROFILE = "quadro-rtx-6000/resnet50"
SAMPLES_PER_UPDATE = 2.0  # of the power sensor, where each of its readings counts
RANDOM, DESCENDING = ORDERS = ("random", "descending")  # in which a sweep tries its caps
OBSERVE_VARIABLE = "AUTOCAP_OBSERVE"

_TUNING = ("run", "attach")
_metric, _caps, _device = (
    partial(CommandOption, Group.METRIC),
    partial(CommandOption, Group.SEARCH),
    partial(CommandOption, Group.DEVICE),
)
_search, _node = partial(_caps, commands=_TUNING), partial(CommandOption, Group.NODE)
_running = partial(CommandOption, Group.RUNNING)
_watts, _seconds = values.positive("watts"), values.positive("seconds")
SLOWDOWN = values.Percentage(least=0.5, most=1.0)
_STDERR = values.Percentage(least=0.05, most=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the price and the carbon of electricity are read, where they change as time goes on, as given: `file:PATH`,
    `command:CMD` or the name of a service; `None` where a number, or nothing, was given."""

    energy_price: str | None = None
    carbon: str | None = None


NO_SOURCES = Sources()


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneConfig:
    """What the controller needs to know besides its parts.

    target_stderr: relative standard error of the cost at which a trial is well enough measured; a repeat is measured
    to half of it. wait_s: from the start. min_cap_w, max_cap_w, step_w, caps_w: inside the device's own range; `None`
    leaves the device's (the limit found on arrival is the top unless max_cap_w or caps_w says otherwise). knob: the
    name of what is turned. knob_settings: of another knob than the power limit, labels or values; `None` for all.
    prune_sigmas: a trial this many standard errors worse than the best is ended. min_batches: fewest batch means
    behind an error. iterations: of the whole job, as its progress counts them; `None` when nobody knows. finish_by:
    when the job is to be done, seconds since 1970.
    """

    metric: Annotated[
        Metric,
        _metric(
            "--metric NAME",
            values.word,
            f"{', '.join(METRICS)} (default: {METRIC})",
            usual=tuple(METRICS),
            short="-m",
            common=True,
        ),
        _metric("--k K", values.number, "EDS: the slowdown that would be worth zero energy, above 1 (default: 2)"),
        _metric(
            "--max-slowdown X%",
            SLOWDOWN,
            "longest time per iteration allowed, against the baseline",
            common=True,
        ),
        _metric(
            "--energy-price MONEY",
            values.not_negative("money per kWh"),
            "money per kWh, for the metric cost",
            commands=("sweep",),
        ),
        _metric(
            "--hour-price MONEY",
            values.not_negative("money per device hour"),
            "for the metrics cost and carbon: money per device hour",
        ),
        _metric(
            "--carbon-price MONEY",
            values.not_negative("money per tonne of CO2"),
            "for the metric carbon, beside --hour-price: money per tonne of CO₂",
            commands=_TUNING,
        ),
    ]
    finish_by: Annotated[
        float | None,
        _metric(
            "--finish-by TIME",
            values.moment,
            "for the metrics cost and carbon, beside --iterations: when the job is to be done, such as "
            "2030-01-31T07:00+01:00",
            commands=_TUNING,
        ),
    ] = None
    min_cap_w: Annotated[float | None, _caps("--min-cap W", _watts, "lowest cap to try")] = None
    max_cap_w: Annotated[
        float | None, _caps("--max-cap W", _watts, "highest cap to try (default: the limit found on arrival)")
    ] = None
    step_w: Annotated[
        float | None,
        _caps(
            "--cap-step W",
            _watts,
            "spacing of the caps (default: 5, finer where the whole range is narrow)",
            help_in={"sweep": "spacing of the caps (default: 5, or 25 where they range over more than 200 W)"},
        ),
    ] = None
    caps_w: Annotated[
        tuple[float, ...] | None, _caps("--caps LIST", values.watts_list, "exactly these caps, by comma")
    ] = None
    knob: Annotated[
        str,
        _device(
            "--knob NAME",
            values.knob,
            "what to turn: power-limit, or another knob that the device offers, such as one of a registered plug-in "
            f"(default: {POWER_LIMIT.name})",
            commands=_TUNING,
        ),
    ] = POWER_LIMIT.name
    knob_settings: Annotated[
        tuple[str, ...] | None,
        _search(
            "--knob-settings LIST",
            values.words,
            "of another knob than the power limit: exactly these, by comma",
            beside=("knob",),
        ),
    ] = None
    target_stderr: Annotated[
        float,
        _search("--target-stderr X%", _STDERR, "how well a trial is measured (default: 0.5%)"),
    ] = TARGET_STDERR
    trial_s: Annotated[
        float,
        _search(
            "--trial-seconds S",
            _seconds,
            f"time limit of one trial, more where 8 iterations take longer (default: {TRIAL_SECONDS:g})",
        ),
    ] = TRIAL_SECONDS
    wait_s: Annotated[
        float, _search("--wait S", _seconds, f"longest wait for steady activity (default: {WAIT_SECONDS:g})")
    ] = WAIT_SECONDS
    quick: Annotated[
        bool,
        _search(
            "--quick",
            None,
            f"for a job of a few minutes, rougher and shorter trials: --target-stderr {100 * QUICK_TARGET_STDERR:g}% "
            f"--trial-seconds {QUICK_TRIAL_SECONDS:g} --wait {QUICK_WAIT_SECONDS:g}, where these are not given",
            common=True,
        ),
    ] = False
    prune_sigmas: float = 3.0
    min_batches: int = 8
    iterations: Annotated[
        int | None,
        _search(
            "--iterations N",
            values.count,
            "how many the whole job has (with a period: from now on): no search that cannot pay back",
            common=True,
        ),
    ] = None
    retune: Annotated[
        float | str,
        _search(
            "--retune MODE",
            values.retune,
            "auto (when the workload has changed), never, or after so many seconds; SIGUSR1 asks for it too "
            f"(default: {RETUNE})",
            usual=("auto", "never"),
        ),
    ] = RETUNE
    observe: Annotated[
        bool, _device("--observe", None, "set nothing: measure, report, and say what would be tried", common=True)
    ] = False
    per_gpu: Annotated[
        bool,
        _device(
            "--per-gpu",
            None,
            "after the common cap, lower that of each GPU which waits for the slowest",
            commands=_TUNING,
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """A whole `autocap run`, `attach` or `autocap.tune`: the command, what to tune with, and where to write.

    command: of a job that was attached to, its own. gpus: indices or UUIDs, `None` for those the job uses. sample_hz:
    `None` for as few as are needed. kill_after_s: `None` waits without limit. out: `None` for a new directory.
    idle_w, standard_idle_w: as NodeMetered has them. prometheus: address and port. log_to: trackers, each once or
    more often. memory: begin from what is remembered of the job, and remember this run. nodes: `None` for this machine
    alone. job: of Slurm, where it is not the one around us. rates: numbers that were given; sources: where others are
    read. step_map_fd: of the map in which a job that asked to be tuned counts its steps. taken: the settings that the
    command line does not give.
    """

    command: tuple[str, ...]
    strategy: Annotated[
        str,
        _search(
            "--strategy NAME",
            values.word,
            f"{{names}}, a registered plug-in, or package.module:Class (default: {STRATEGY})",
            kind="strategies",
            runs_code=".*:",
        ),
    ] = STRATEGY
    strategy_options: Annotated[
        tuple[tuple[str, str], ...],
        _search(
            "--strategy-option KEY=VALUE",
            values.key_value,
            "an option of the strategy; may be repeated",
            repeated=True,
        ),
    ] = ()
    device: Annotated[
        str,
        _device(
            "--device NAME",
            values.word,
            "auto, nvml, rapl (CPU packages), emulated[:PROFILE], or KIND[:ARG] of a registered plug-in "
            f"(default: {DEVICE})",
            usual=(DEVICE, "nvml", "rapl", "emulated"),
            common=True,
        ),
    ] = DEVICE
    via: Annotated[
        str,
        _device(
            "--via NAME",
            values.via,
            "who sets the limit: auto (direct where that is permitted, else the helper, else zeusd), direct, helper, "
            f"zeusd (default: {VIA})",
            usual=(VIA, "direct", "helper", "zeusd"),
        ),
    ] = VIA
    shared_gpu: Annotated[
        bool, _device("--shared-gpu", None, "tune a GPU on which other processes compute as well")
    ] = False
    sample_hz: Annotated[
        float | None,
        _device(
            "--sample-hz HZ", values.between(1, 100, "samples a second"), "1 to 100 (default: as few as are needed)"
        ),
    ] = None
    tune: TuneConfig
    warm_start: Annotated[
        Path | None,
        _search(
            "--warm-start RUN_DIR",
            values.path,
            "begin from an earlier run's curve of the same GPU model, driver branch and command",
        ),
    ] = None
    memory: Annotated[
        bool,
        _search("--no-memory", None, "begin from nothing, and remember nothing of this run for the next of its job"),
    ] = True
    gpus: Annotated[
        tuple[str, ...] | None,
        _device(
            "--gpus LIST",
            values.gpu_list,
            "indices, ranges or UUIDs of GPUs or CPU packages, by comma (default: those the job uses)",
            commands=_TUNING,
            common=True,
        ),
    ] = None
    nodes: Annotated[
        str | None,
        _device(
            "--nodes WHERE",
            values.nodes,
            "tune a job on all its nodes: slurm (those of the job around this command, or of --job), or ray[:ADDRESS] "
            "(default: this machine alone)",
            commands=_TUNING,
            usual=("slurm", "ray"),
        ),
    ] = None
    job: Annotated[
        str | None,
        _device(
            "--job ID",
            values.engine_job,
            "with --nodes: the job's id in Slurm or Ray, in place of PID",
            commands=("attach",),
            beside=("nodes",),
        ),
    ] = None
    progress: Annotated[
        str,
        _device(
            "--progress KIND",
            values.word,
            f"{', '.join(PROGRESS_KINDS['run'])} (default: {PROGRESS})",
            commands=_TUNING,
            help_in={"attach": f"{', '.join(PROGRESS_KINDS['attach'])} (default: {PROGRESS})"},
            usual=(PROGRESS, "steps", "calls", "period", "regex:", "speed"),
            common=True,
        ),
    ] = PROGRESS
    rates: Annotated[
        Rates,
        _metric(
            "--energy-price SOURCE",
            values.energy_price,
            "money per kWh: for the metric cost, and to say what was saved; a number, or where it is read as it "
            "changes: file:PATH, command:CMD, entsoe:ZONE",
            commands=_TUNING,
            usual=("file:", "command:", "entsoe:"),
            runs_code="command:",
        ),
        _metric(
            "--currency NAME",
            values.currency,
            "of that money: its sign or code, such as € or EUR",
            commands=_TUNING,
            beside=("energy_price",),
        ),
        _metric(
            "--carbon SOURCE",
            values.carbon,
            "grams of CO₂ per kWh, to say what was saved: a number, or where it is read as it changes: file:PATH, "
            "command:CMD, gb, electricitymaps:ZONE",
            commands=_TUNING,
            usual=("file:", "command:", "gb", "electricitymaps:"),
            runs_code="command:",
        ),
    ] = NO_RATES
    node_power: Annotated[
        str,
        _node(
            "--node-power SOURCE",
            values.node_power,
            "count the machine's energy, not the GPUs' alone: watts or rapl (are added to the GPUs'), ipmi, slurm or "
            "command:CMD (a meter of the whole machine, which prints watts, a line a reading), none "
            f"(default: {NODE_POWER})",
            usual=(NODE_POWER, "rapl", "ipmi", "slurm", "command:"),
            runs_code="command:",
        ),
    ] = NODE_POWER
    idle_w: Annotated[
        float | None,
        _node(
            "--idle-power W",
            _watts,
            "what the whole machine draws at rest (default: estimated before the first iteration)",
            help_in={"sweep": "what the whole machine draws at rest (default: estimated between the runs)"},
        ),
    ] = None
    standard_idle_w: Annotated[
        float | None,
        _node(
            "--standard-idle W",
            values.not_negative("watts"),
            "report energy also as on a machine that draws W at rest, to compare machines",
        ),
    ] = None
    kill_after_s: Annotated[
        float | None,
        _running(
            "--kill-after S",
            values.not_negative("seconds"),
            "SIGKILL a child that outlives a forwarded signal by S seconds (default: never)",
            commands=("run", "sweep"),
        ),
    ] = None
    out: Annotated[
        Path | None,
        _running(
            "--out DIR",
            values.path,
            "run directory (default: autocap-runs/<start>-<pid>)",
            short="-o",
            common=True,
        ),
    ] = None
    force: Annotated[bool, _running("--force", None, "replace the run that --out holds")] = False
    json: Annotated[bool, _running("--json", None, "print the result as one last line on stdout")] = False
    quiet: Annotated[bool, _running("--quiet", None, "print nothing on stderr", short="-q", common=True)] = False
    verbose: Annotated[bool, _running("--verbose", None, "debug log on stderr", short="-v")] = False
    prometheus: Annotated[
        tuple[str, int] | None,
        _running(
            "--prometheus [ADDRESS:]PORT",
            values.endpoint,
            "serve the run's numbers to Prometheus (address: 127.0.0.1)",
            commands=_TUNING,
        ),
    ] = None
    log_to: Annotated[
        tuple[str, ...],
        _running(
            "--log-to TRACKER",
            values.word,
            "log to {names} as well; may be repeated",
            kind="trackers",
            commands=_TUNING,
            repeated=True,
        ),
    ] = ()
    sources: Sources = NO_SOURCES
    step_map_fd: int | None = None
    taken: tuple[TakenSetting, ...] = ()
