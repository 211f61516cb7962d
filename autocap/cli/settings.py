"""Settings that the command line does not give: from variables `AUTOCAP_*`, from `./autocap.toml` and from the user's
own file, in this order. An option of a command can be given so by its own name.

What stands in no table, and the variable `AUTOCAP_` with an option's name, hold for the commands that run or measure a
job, if they have the option. Every other command has a table of its own, and variables that begin with its name: what a
file says of runs does not change what a budget or a report is.

A setting that is about something which is not asked for this time, such as a price where the metric is energy, is left
out: a file is written once for many runs.
"""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from autocap.cli import settings_file
from autocap.cli.logging_setup import log_everything
from autocap.cli.settings_file import HERE, Entry
from autocap.config import METRIC, NODE_POWER, OBSERVE_VARIABLE, STRATEGY, RunConfig
from autocap.config.option import (
    CommandOption,
    Group,
    Record,
    TakenSetting,
    commands_of,
    holds,
    options_of,
    taken_words,
)
from autocap.config.values import shown, truth
from autocap.errors import UsageError
from autocap.job import registry
from autocap.text import did_you_mean, note

PREFIX = "AUTOCAP_"
# What stands in such variables and is no option.
OTHER_VARIABLES = (
    "DEBUG",
    "HELPER",
    "NVIDIA_GPUS",
    "STATE_DIR",
    "SYSFS",
    "STEP_MAP",
    "EMULATED_NVML",
    "EMULATED_NVML_COST",
    "SNAPSHOTS",
    "VALUES",
)
COMMAND_LINE = "command line"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """text: as it was written, "yes" or "no" for an option without a value. value: as argparse would have read it.
    unused: why it has no say, a clause, or nothing."""

    option: CommandOption
    text: str
    value: object
    source: str
    unused: str = ""


Layer = Mapping[str, Setting]  # by keyword, all from one source


@cache
def options(command: str) -> dict[str, CommandOption]:
    """A command's options by keyword, in the order of its help."""
    declared = {option.keyword: option for option in options_of(_record(command), command)}
    order = list(Group)
    return dict(sorted(declared.items(), key=lambda item: order.index(item[1].group) if item[1].group in order else -1))


def commands() -> tuple[str, ...]:
    """Those that have settings."""
    return tuple(registry.ours("settings"))


@cache
def of_a_job(command: str) -> bool:
    """Whether a command shares its settings with the others that run or measure a job."""
    return holds(_record(command), RunConfig)


def variable(command: str, keyword: str) -> str:
    """That an option of a command is read from."""
    return PREFIX + ("" if of_a_job(command) else f"{command.upper()}_") + keyword.upper()


def take(args: argparse.Namespace, command: str, only: Sequence[type[Record]] = ()) -> None:
    """Add to what was parsed what else there is; `taken` is what was added. only: the options of these records alone.
    Raises UsageError for what is wrong."""
    known = options(command)
    given = {
        keyword: Setting(option=known[keyword], text=str(value), value=value, source=COMMAND_LINE)
        for keyword, value in vars(args).items()
        if keyword in known
    }
    args.taken = ()
    if args.no_config:
        return
    wanted = {option.keyword for record in only or (_record(command),) for option in options_of(record, command)}
    for keyword, setting in settled(command, [given, *layers(command)]).items():
        if setting.source != COMMAND_LINE and not setting.unused and keyword in wanted:
            setattr(args, keyword, setting.value)
            args.taken += (TakenSetting(name=setting.option.name, value=setting.text, source=setting.source),)
    if args.taken and not of_a_job(command):  # which says and records it once it has begun
        note(f"settings taken: {taken_words(args.taken)}")
    if getattr(args, "verbose", False):
        log_everything()


def from_command_line(command: str, given: Mapping[str, object]) -> Layer:
    """Texts by keyword. Raises UsageError for an option that the command does not have, and for a wrong value."""
    flags = {option.keyword: option.flag for name in commands() for option in options(name).values()}
    for keyword in given.keys() - options(command).keys():
        raise UsageError(f"autocap {command} has no option {flags[keyword]}; `autocap help {command}` lists them")
    own = options(command)
    return {key: _setting(own[key], value, COMMAND_LINE, f"argument {flags[key]}") for key, value in given.items()}


def layers(command: str) -> list[Layer]:
    """Everything that is set for a command elsewhere than on its line, the first to have its say first. Raises
    UsageError for what is wrong, also where it is about another command."""
    files = ((path, settings_file.read(path, _is_command)) for path in settings_file.paths())
    return [_from_variables(command), *(_from_file(path, found, command) for path, found in files if found)]


def settled(command: str, found: Sequence[Layer]) -> dict[str, Setting]:
    """Each setting from the first layer that has it, marked where it has no say."""
    first: dict[str, Setting] = {}
    for layer in reversed(found):
        first |= layer
    return {
        keyword: setting
        if setting.source == COMMAND_LINE
        else replace(setting, unused=_unused(command, keyword, first, found))
        for keyword, setting in first.items()
    }


def _unused(command: str, keyword: str, first: Layer, found: Sequence[Layer]) -> str:
    metric, node_power = _text(first, "metric", METRIC), _text(first, "node_power", NODE_POWER)
    priced = ("cost", "carbon")
    belongs_to = {"k": ("eds",), "hour_price": priced, "carbon_price": ("carbon",), "finish_by": priced}
    belongs_to |= {"energy_price": ("cost",)} if command == "sweep" else {}
    if metric not in belongs_to.get(keyword, (metric,)):
        return f"the metric is {metric}"
    beside = first[keyword].option.beside
    if beside and not any(other in first for other in beside):
        return f"no {beside[0].replace('_', ' ')} is given"
    if keyword in ("idle_power", "standard_idle") and node_power == NODE_POWER:
        return "no power of the node is read"
    rank = {name: number for number, layer in reversed(list(enumerate(found))) for name in layer}
    rival = {"caps": "cap_step", "cap_step": "caps"}.get(keyword)
    if rival in rank and rank[rival] < rank[keyword]:
        return f"{first[rival].option.name} is given instead"
    if keyword == "strategy_option":
        strategy = _text(first, "strategy", STRATEGY)
        meant = next((layer["strategy"].text for layer in found[rank[keyword] :] if "strategy" in layer), STRATEGY)
        if strategy != meant:
            return f"the strategy is {strategy}"
    return ""


def _text(first: Layer, keyword: str, otherwise: str) -> str:
    return first[keyword].text if keyword in first else otherwise


def _from_variables(command: str) -> Layer:
    own = {variable(command, keyword): option for keyword, option in options(command).items()}
    _refuse_misspelt({name for name in os.environ if name.startswith(PREFIX)} - own.keys())
    layer = {}
    for name, option in own.items():
        text = os.environ.get(name, "")
        if text:
            layer[option.keyword] = _setting(option, _of_variable(name, text, option), name, name)
    return layer


def _refuse_misspelt(names: set[str]) -> None:
    """Raises UsageError for a variable that looks like one of ours and is none."""
    if not names - {PREFIX + name for name in OTHER_VARIABLES}:
        return
    declared = {variable(name, keyword): one for name in commands() for keyword, one in options(name).items()}
    known = declared.keys() | {PREFIX + name for name in OTHER_VARIABLES}
    for name in names - known:
        positive = declared.get(name.replace(f"{PREFIX}NO_", PREFIX))
        if positive is not None and not positive.const:
            raise UsageError(f"{name} is no {PREFIX}… variable; set {PREFIX}{positive.keyword.upper()}=0 instead")
        longer = sorted(one for one in declared if one.endswith(f"_{name.removeprefix(PREFIX)}"))
        meant = did_you_mean(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in known])
        if longer or meant:  # any other is a stranger's
            better = " or ".join(longer) or PREFIX + meant.removeprefix(" (did you mean ").removesuffix("?)")
            raise UsageError(f"{shown(name)} is no {PREFIX}… variable; set {better} instead, or unset it")


def _of_variable(variable: str, text: str, option: CommandOption) -> object:
    if option.read is not None:
        return text.split() if option.repeated else text
    if variable == OBSERVE_VARIABLE:  # whatever it is, but for 0: it is there to forbid
        return text != "0"
    try:
        return truth(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{variable}: {error}") from None


def _from_file(path: str, entries: Sequence[Entry], command: str) -> Layer:
    found: dict[str | None, dict[str, Setting]] = {}
    for entry in entries:
        option = _option_of(entry, command)
        if option is None:
            continue
        setting = _setting(option, entry.value, path, f"{entry.place}: {option.name}")
        if path == HERE and option.runs_code is not None and re.match(option.runs_code, setting.text, re.DOTALL):
            raise UsageError(
                f"{entry.place}: {option.name} {shown(setting.text)} has code run, which a folder may have "
                "brought with it; give it on the command line, in a variable or in your own file"
            )
        found.setdefault(entry.table, {})[option.keyword] = setting
    layer: dict[str, Setting] = {}
    for table in (*([None] if of_a_job(command) else []), *reversed(commands_of(_record(command), command))):
        layer |= {keyword: one for keyword, one in found.get(table, {}).items() if keyword in options(command)}
    return layer


def _option_of(entry: Entry, command: str) -> CommandOption | None:
    """The option that a key means: the command's, or that of another one which has it; `None` where it may be one of a
    plug-in that is not there. Raises UsageError for none."""
    absent = registry.absent("settings")
    if entry.table in absent:
        return None
    if entry.table is not None and entry.table not in commands():
        raise UsageError(f"{entry.place}: autocap {entry.table} takes no settings; leave them out")
    where = [entry.table] if entry.table is not None else [command, *filter(of_a_job, commands())]
    known = [option for name in where for option in options(name).values()]
    for option in known:
        if option.name == entry.key:
            return option
    names = [option.name for option in known]
    meant = did_you_mean(entry.key, names if entry.table else [*names, *commands()])
    if absent and not entry.table and not meant and entry.key not in commands():
        return None
    which = f"autocap {entry.table} has" if entry.table else "there is"
    raise UsageError(
        f"{entry.place}: {which} no option {shown(entry.key)}{meant}; "
        f"`autocap help {entry.table or command}` lists them"
    )


def _is_command(name: str) -> bool:
    return name in registry.ours("commands") or name in registry.absent("commands")


def _record(command: str) -> type[Record]:
    found: type[Record] = registry.load("settings", command)
    return found


def _setting(option: CommandOption, value: object, source: str, place: str) -> Setting:
    """Raises UsageError for a value that the option does not take."""
    if option.read is None:
        if not isinstance(value, bool):
            raise UsageError(f"{place}: it is true or false, not {shown(repr(value))}")
        return Setting(option=option, text="yes" if value else "no", value=value, source=source)
    try:
        texts = option.texts(value)
        read = option.read_all(texts)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{place}: {error}") from None
    return Setting(option=option, text=" ".join(texts), value=read, source=source)
