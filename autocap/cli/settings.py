"""Settings that the command line does not give: from variables `AUTOCAP_*`, from `./autocap.toml` and from the user's
own file, in this order. Every option of `run`, `attach` and `sweep` can be given so, by its own name.

A setting that is about something which is not asked for this time, such as a price where the metric is energy, is left
out: a file is written once for many runs.
"""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autocap.cli import settings_file
from autocap.cli.settings_file import HERE, Entry
from autocap.config import METRIC, NODE_POWER, OBSERVE_VARIABLE, STRATEGY, RunConfig
from autocap.config.option import CommandOption, Group, Record, TakenSetting, options_of
from autocap.config.sweep import SweepConfig
from autocap.config.values import shown, truth
from autocap.errors import UsageError
from autocap.text import did_you_mean

COMMANDS: Mapping[str, type[Record]] = {"run": RunConfig, "attach": RunConfig, "sweep": SweepConfig}
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


def options(command: str) -> dict[str, CommandOption]:
    """A command's options by keyword, in the order of its help."""
    declared = {option.keyword: option for option in options_of(COMMANDS[command], command)}
    return dict(sorted(declared.items(), key=lambda item: list(Group).index(item[1].group)))


def take(args: argparse.Namespace, command: str) -> None:
    """Add to what was parsed what else there is; `taken` is what was added. Raises UsageError for what is wrong."""
    known = options(command)
    given = {
        keyword: Setting(option=known[keyword], text=str(value), value=value, source=COMMAND_LINE)
        for keyword, value in vars(args).items()
        if keyword in known
    }
    args.taken = ()
    if args.no_config:
        return
    for keyword, setting in settled(command, [given, *layers(command)]).items():
        if setting.source != COMMAND_LINE and not setting.unused:
            setattr(args, keyword, setting.value)
            args.taken += (TakenSetting(name=setting.option.name, value=setting.text, source=setting.source),)


def from_command_line(command: str, given: Mapping[str, object]) -> Layer:
    """Texts by keyword. Raises UsageError for an option that the command does not have, and for a wrong value."""
    flags = {option.keyword: option.flag for name in COMMANDS for option in options(name).values()}
    for keyword in given.keys() - options(command).keys():
        raise UsageError(f"autocap {command} has no option {flags[keyword]}; `autocap help {command}` lists them")
    own = options(command)
    return {key: _setting(own[key], value, COMMAND_LINE, f"argument {flags[key]}") for key, value in given.items()}


def layers(command: str) -> list[Layer]:
    """Everything that is set for a command elsewhere than on its line, the first to have its say first. Raises
    UsageError for what is wrong, also where it is about another command."""
    files = ((path, settings_file.read(path, tuple(COMMANDS))) for path in settings_file.paths())
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
    if keyword == "currency" and "energy_price" not in first:
        return "no energy price is given"
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
    own = {name: options(name) for name in COMMANDS}
    declared = {keyword.upper(): option for one in own.values() for keyword, option in one.items()}
    known = {PREFIX + name: name for name in (*declared, *OTHER_VARIABLES)}
    for variable in os.environ:
        if variable in known or not variable.startswith(PREFIX):
            continue
        positive = declared.get(variable.removeprefix(f"{PREFIX}NO_"))
        if positive is not None and not positive.const:
            raise UsageError(f"{variable} is no {PREFIX}… variable; set {PREFIX}{positive.keyword.upper()}=0 instead")
        meant = did_you_mean(variable.removeprefix(PREFIX), known.values())
        if meant:  # any other is a stranger's
            name = PREFIX + meant.removeprefix(" (did you mean ").removesuffix("?)")
            raise UsageError(f"{shown(variable)} is no {PREFIX}… variable; set {name} instead, or unset it")
    layer = {}
    for keyword, option in own[command].items():
        variable = PREFIX + keyword.upper()
        text = os.environ.get(variable, "")
        if text:
            layer[keyword] = _setting(option, _of_variable(variable, text, option), variable, variable)
    return layer


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
    of_all, of_command = {}, {}
    for entry in entries:
        option = _option_of(entry, command)
        setting = _setting(option, entry.value, path, f"{entry.place}: {option.name}")
        if path == HERE and option.runs_code is not None and re.match(option.runs_code, setting.text, re.DOTALL):
            raise UsageError(
                f"{entry.place}: {option.name} {shown(setting.text)} has code run, which a folder may have "
                "brought with it; give it on the command line, in a variable or in your own file"
            )
        if entry.table == command:
            of_command[option.keyword] = setting
        elif entry.table is None and option.keyword in options(command):
            of_all[option.keyword] = setting
    return of_all | of_command


def _option_of(entry: Entry, command: str) -> CommandOption:
    """The option that a key means: the command's, or that of another one which has it. Raises UsageError for none."""
    where = [entry.table] if entry.table is not None else [command, *COMMANDS]
    known = [option for name in where for option in options(name).values()]
    for option in known:
        if option.name == entry.key:
            return option
    names = [option.name for option in known]
    meant = did_you_mean(entry.key, names if entry.table else [*names, *COMMANDS])
    which = f"autocap {entry.table} has" if entry.table else "there is"
    raise UsageError(
        f"{entry.place}: {which} no option {shown(entry.key)}{meant}; "
        f"`autocap help {entry.table or command}` lists them"
    )


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
