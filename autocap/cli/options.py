"""The options that the config records declare: added to a command's parser, and turned into the records."""

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from autocap import config, devices
from autocap.cli.completion import offer
from autocap.config import PROGRESS_KINDS, RunConfig, Sources, TuneConfig
from autocap.config.option import CommandOption, Group, Record, options_of, record_from
from autocap.config.values import too_fine
from autocap.devices.model import profile_names
from autocap.errors import UsageError
from autocap.events.quote import CARBON, PRICE
from autocap.job import registry
from autocap.knobs import POWER_LIMIT
from autocap.metrics import DEFAULT_K, NO_RATES, Metric, Rates
from autocap.progress.calls.target import call_target
from autocap.progress.regex import compile_pattern
from autocap.text import did_you_mean

_QUICK = {
    "target_stderr": config.QUICK_TARGET_STDERR,
    "trial_seconds": config.QUICK_TRIAL_SECONDS,
    "wait": config.QUICK_WAIT_SECONDS,
}
_NO_CONFIG = "take no settings from autocap.toml and AUTOCAP_* variables"


def declare(
    parser: argparse.ArgumentParser,
    command: str,
    record: type[Record] = RunConfig,
    titles: Mapping[Group, str] | None = None,
) -> None:
    """Add a command's options. titles: of groups that have another one than usual."""
    options = list({option.flag: option for option in options_of(record, command)}.values())
    found = {option.group for option in options}
    own = dict.fromkeys(option.group for option in options if isinstance(option.group, str))
    of_a_job = Group.RUNNING in found
    groups: list[Group | str] = [*own, *(one for one in Group if one in found)]
    added: argparse.ArgumentParser | argparse._ArgumentGroup = parser
    for group in groups:
        title = group if isinstance(group, str) else (titles or {}).get(group, group.value)
        added = parser.add_argument_group(title) if title else parser
        for option in options:
            if option.group == group:
                _add(added, option, command, rare=of_a_job and not option.common)
    without = (added if of_a_job else parser).add_argument("--no-config", action="store_true", help=_NO_CONFIG)
    without.rare = of_a_job  # type: ignore[attr-defined]


def _add(
    group: "argparse.ArgumentParser | argparse._ArgumentGroup", option: CommandOption, command: str, *, rare: bool
) -> None:
    text = option.help_of(command).replace("%", "%%")
    kind: dict[str, Any]  # argparse's own signature
    if option.read is None:
        kind = {"action": "store_const", "const": option.const, "dest": option.keyword}
    else:
        kind = {"action": "append" if option.repeated else "store", "type": option.read, "choices": option.choices}
        kind["metavar"] = option.usage.partition(" ")[2] or None
    added = group.add_argument(*option.flags, default=argparse.SUPPRESS, help=text, **kind)
    usual = option.usual_in(command)
    if "emulated" in usual:
        offer(added, lambda: (*usual, *(f"emulated:{name}" for name in profile_names())))
    elif usual:
        offer(added, lambda: usual)
    added.rare = rare  # type: ignore[attr-defined]  # for the short help


def run_config(args: argparse.Namespace, command: str) -> RunConfig:
    """The run that the options of `autocap run` or `sweep` mean.

    Raises UsageError for what the command line alone shows to be wrong.
    """
    if not args.child:
        raise UsageError(f"a command is missing; write `autocap {command} [options] -- CMD …`")
    made = _made(args, command)
    if made.progress not in PROGRESS_KINDS["run"] and not _is_progress(made.progress, "regex", "calls"):
        raise _unknown_progress(made.progress, PROGRESS_KINDS["run"])
    if made.progress.startswith("calls:"):
        call_target(made.progress)
    if made.progress.startswith("regex:"):
        compile_pattern(made.progress.removeprefix("regex:"))
    return made


def attach_config(args: argparse.Namespace, mode: str = "attach") -> RunConfig:
    """The same for a job that runs already, whose command is not known yet. mode: "attach", or "tune" for a job that
    asked for it."""
    if args.child is not None:
        raise UsageError("attach starts no command; leave out `--` and what follows, or use `autocap run`")
    made, kinds = _made(args, "attach"), PROGRESS_KINDS[mode]
    if made.job is not None and (made.nodes is None or mode == "tune"):
        raise UsageError(
            f"--job {made.job} names a job of Slurm or Ray to attach to; "
            + ("leave it out, as the script is in its own job" if mode == "tune" else "add --nodes, or drop it")
        )
    if made.progress.startswith("calls:") and "calls" in kinds:
        call_target(made.progress)
    elif made.progress not in kinds and not _is_progress(made.progress):
        if made.progress in PROGRESS_KINDS["run"] or made.progress.startswith("regex:"):
            raise UsageError(
                f"progress {made.progress} needs a job that autocap starts; choose {', '.join(kinds)}, or use "
                "`autocap run`"
            )
        raise _unknown_progress(made.progress, kinds)
    return made


def _is_progress(text: str, *ours: str) -> bool:
    """Whether it is of one of these kinds, with an argument, or of another package's."""
    kind, colon, _ = text.partition(":")
    return (bool(colon) and kind in ours) or kind in registry.plugged_in("progress")


def _unknown_progress(name: str, kinds: Sequence[str]) -> UsageError:
    kinds = (*kinds, *registry.plugged_in("progress"))
    meant = did_you_mean(name.partition(":")[0], [kind.partition(":")[0] for kind in kinds])
    return UsageError(f"unknown progress '{name}'{meant}; choose {', '.join(kinds)}")


def observing() -> bool:
    """Whether the environment forbids every command to set anything."""
    return os.environ.get(config.OBSERVE_VARIABLE, "0") not in ("", "0")


def _made(args: argparse.Namespace, command: str) -> RunConfig:
    given = vars(args)
    if given.get("quick", False):
        given = {**_QUICK, **given}
    _check_caps(given)
    _check_knob(given)
    metric, rates = _metric(given, command), NO_RATES if command == "sweep" else rates_of(given)
    tune = record_from(TuneConfig, command, given, metric=metric, observe=given.get("observe", False) or observing())
    taken = given.get("taken", ())
    made = record_from(
        RunConfig,
        command,
        given,
        command=tuple(args.child or ()),
        tune=tune,
        rates=rates,
        sources=sources_of(given),
        taken=taken,
    )
    devices.check_name(made.device)
    if made.tune.knob != POWER_LIMIT.name and devices.kind_of(made.device) in registry.ours("devices"):
        raise UsageError(
            f"--knob {made.tune.knob}: {made.device} has the power limit alone; name the --device of a package that "
            "offers the knob, or leave it out"
        )
    if made.nodes is not None:
        registry.require("transports", made.nodes.partition(":")[0], f"--nodes {made.nodes}")
    for tracker in made.log_to:
        registry.require("trackers", tracker, f"--log-to {tracker}")
    _check_sources(made.sources)
    if made.device == "rapl" and made.node_power in ("rapl", "slurm"):
        raise UsageError(
            f"--node-power {made.node_power} would count the packages of --device rapl again; drop one of them"
        )
    for option, value in (("--idle-power", made.idle_w), ("--standard-idle", made.standard_idle_w)):
        if value is not None and made.node_power == config.NODE_POWER:
            raise UsageError(f"{option} is about the node's power; add --node-power, or drop it")
    return made


def rates_of(given: Mapping[str, Any], known: Rates = NO_RATES) -> Rates:
    """The rates that the options of `autocap run`, `attach` or `report` give, and where they do not, those known.

    Raises UsageError for a currency without a price.
    """
    sources = sources_of(given)
    made = Rates(
        energy_price=None if sources.energy_price else given.get("energy_price", known.energy_price),
        currency=given.get("currency", known.currency),
        carbon_g_per_kwh=None if sources.carbon else given.get("carbon", known.carbon_g_per_kwh),
    )
    if made.currency is not None and sources.energy_price is not None:
        raise UsageError(f"--currency {made.currency}: the source of --energy-price names its own in its unit; drop it")
    if made.currency is not None and made.energy_price is None:
        raise UsageError(f"--currency {made.currency} is of the energy price; add --energy-price, or drop it")
    return made


def sources_of(given: Mapping[str, Any]) -> Sources:
    """Where prices and carbon are read that were not given as numbers."""
    texts = {key: given.get(key) for key in ("energy_price", "carbon")}
    return Sources(**{key: text for key, text in texts.items() if isinstance(text, str)})


def _check_sources(sources: Sources) -> None:
    for kind, source in ((PRICE, sources.energy_price), (CARBON, sources.carbon)):
        if source is not None:
            from autocap.session.prices import reading  # which needs numpy

            reading.check(source, kind)


def _metric(given: Mapping[str, Any], command: str) -> Metric:
    name = given.get("metric", config.METRIC)
    keys = ("k", "energy_price", "hour_price", "max_slowdown", "carbon_price")
    parameters: dict[str, Any] = {key: given.get(key) for key in keys}
    if name != "cost" and command != "sweep":  # there it is for the report
        del parameters["energy_price"]
    if name == "cost" and isinstance(given.get("energy_price"), str):
        parameters |= {"moving": True, "energy_price": None}
    if name == "carbon":
        _check_carbon(given, command)
        parameters["moving"] = True
    if name == "eds" and parameters["k"] is None:
        parameters["k"] = DEFAULT_K
    try:
        made = Metric(name=name, **parameters)
    except ValueError as error:
        raise UsageError(str(error)) from None
    _check_deadline(given, made)
    return made.at(given["carbon"]) if name == "carbon" and isinstance(given["carbon"], float) else made


def _check_carbon(given: Mapping[str, Any], command: str) -> None:
    if command == "sweep":
        raise UsageError("the metric carbon is for `autocap run` and `autocap attach`; choose another one for a sweep")
    if given.get("carbon") is None:
        raise UsageError("the metric carbon needs the carbon of a kWh; add --carbon, in grams or where it is read")
    prices = {f"--{key.replace('_', '-')}": given.get(key) for key in ("carbon_price", "hour_price")}
    missing = [flag for flag, price in prices.items() if not price]
    if len(missing) == 1:
        raise UsageError(f"carbon is weighed against time by --carbon-price and --hour-price; add {missing[0]}")
    if missing and not {"max_slowdown", "finish_by"} & given.keys():
        raise UsageError(
            "the metric carbon needs what time is worth: add --carbon-price and --hour-price, or a limit: "
            "--max-slowdown or --finish-by"
        )


def _check_deadline(given: Mapping[str, Any], metric: Metric) -> None:
    if given.get("finish_by") is None:
        return
    if metric.name not in ("cost", "carbon"):
        raise UsageError(f"--finish-by belongs to the metrics cost and carbon, not to {metric.name}")
    if given.get("iterations") is None:
        raise UsageError("--finish-by needs to know how long the job is; add --iterations")
    if given["finish_by"] <= time.time():
        raise UsageError("--finish-by is a time that has passed; give one to come")


def _check_knob(given: Mapping[str, Any]) -> None:
    knob = given.get("knob", POWER_LIMIT.name)
    if knob == POWER_LIMIT.name:
        if "knob_settings" in given:
            raise UsageError("--knob-settings are of another knob than the power limit; add --knob, or pass --caps")
        return
    of_caps = ("min_cap", "max_cap", "cap_step", "caps", "per_gpu", "nodes")
    wrong = [f"--{key.replace('_', '-')}" for key in of_caps if key in given]
    if wrong:
        raise UsageError(
            f"{wrong[0]} is of the power limit alone, and --knob {knob} turns another one; drop one of them"
        )


def _check_caps(given: Mapping[str, Any]) -> None:
    low, high, caps_w = given.get("min_cap"), given.get("max_cap"), given.get("caps", ())
    if low is not None and high is not None and low > high:
        raise UsageError(f"--min-cap {low:g} W is above --max-cap {high:g} W; swap them or drop one")
    if low is not None and high is not None and "cap_step" in given:
        why_not = too_fine(low, high, given["cap_step"])
        if why_not is not None:
            raise UsageError(why_not)
    if caps_w and "cap_step" in given:
        raise UsageError("--caps lists the caps, so --cap-step has nothing to space; drop one of them")
    for cap_w in caps_w:
        if (low is not None and cap_w < low) or (high is not None and cap_w > high):
            raise UsageError(f"--caps holds {cap_w:g} W, which --min-cap or --max-cap excludes; drop one of them")
