"""Settings that the command line does not give: from variables `AUTOCAP_*`, from `./autocap.toml` and from the user's
own file, in this order. An option of a command can be given so by its own name.

What stands in no table, and the variable `AUTOCAP_` with an option's name, hold for the commands that run or measure a
job, if they have the option. Every other command has a table of its own, and variables that begin with its name: what a
file says of runs does not change what a budget or a report is.

A setting that is about something which is not asked for this time, such as a price where the metric is energy, is left
out: a file is written once for many runs. It may say which bounds a cap has and where files are written, and a run may
be root's: so no file is used that somebody else could have written, and it is read with the rights of whoever typed the
command.
"""

import argparse
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from autocap.cli.logging_setup import log_everything
from autocap.config import METRIC, NODE_POWER, OBSERVE_VARIABLE, STRATEGY, RunConfig
from autocap.config.option import (
    RENAMED,
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
from autocap.job.invoking_user import InvokingUser, acting_as, invoking_user
from autocap.job.keeper import user_behind_sudo
from autocap.job.trusted_code import writer_of
from autocap.runlog.input_file import KIB, InputRefused, read_input
from autocap.text import did_you_mean, note

NAME = "autocap.toml"
HERE = f"./{NAME}"
_MOST = 64 * KIB
_WITHOUT = "or go on without such files by --no-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """table: the command whose table it stands in, `None` for what holds for every command. place: where it stands, as
    an error begins."""

    table: str | None
    key: str
    value: object
    place: str


def file_paths() -> list[str]:
    """The files that may be there, that of the current directory first, as they are shown."""
    own = _of_user(user_behind_sudo())
    return [HERE] if own is None or os.path.abspath(own) == os.path.abspath(HERE) else [HERE, own]


def read_file(path: str, is_table: Callable[[str], bool]) -> list[Entry] | None:
    """What one of these files holds; `None` where it is not there. is_table: whether that is a command's name.

    Raises UsageError where it cannot be read, is no TOML, or is not to be trusted.
    """
    if not is_file_there(path):
        return None
    with acting_as(invoking_user()):
        text = _text_of(path)
    return list(_entries(path, text, is_table))


def is_file_there(path: str) -> bool:
    """Whether there is such a file for whoever typed the command: one in a directory that is closed to them is not
    meant for them."""
    with acting_as(invoking_user()):
        try:
            os.stat(path)
        except (OSError, ValueError):
            return False
        return True


def _of_user(user: InvokingUser | None) -> str | None:
    """Where the user's own file is; under sudo nothing but their home counts, as the variables may be root's."""
    base = os.environ.get("XDG_CONFIG_HOME", "") if user is None else ""
    if not os.path.isabs(base):
        home = os.path.expanduser("~") if user is None else user.home
        base = os.path.join(home, ".config")
    return os.path.join(base, "autocap", NAME) if os.path.isabs(base) else None


def _entries(path: str, text: str, is_table: Callable[[str], bool]) -> Iterator[Entry]:
    for key, value in _parsed(path, text).items():
        if is_table(key) and isinstance(value, Mapping):
            for inner, of_inner in value.items():
                yield Entry(table=key, key=inner, value=of_inner, place=_place(path, text, key, inner))
        else:
            yield Entry(table=None, key=key, value=value, place=_place(path, text, None, key))


def _text_of(path: str) -> str:
    try:
        return read_input(Path(path), _MOST, partial(_require_own, path)).decode()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; give it the right mode, {_WITHOUT}") from error
    except InputRefused as error:
        raise UsageError(f"{error}; make it a plain file, {_WITHOUT}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no UTF-8 text, as TOML is; write it anew, {_WITHOUT}") from error


def _require_own(path: str, fd: int) -> None:
    why_not = writer_of(fd, os.getuid())
    if why_not is not None:
        raise UsageError(
            f"{path} is not to be trusted, as {why_not}; make it your own, with `chmod go-w`, or a copy, {_WITHOUT}"
        )


def _parsed(path: str, text: str) -> dict[str, object]:
    import tomllib  # most runs have no such file

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, arrays in arrays
        why = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f'{path} is no TOML: {why}; write lines such as `metric = "energy"`') from None


def _place(path: str, text: str, table: str | None, key: str) -> str:
    """Where a key stands, as far as that can be told: the parser does not say."""
    inside: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\s*([\w-]+)\s*\]", line)
        if header:
            inside = header[1]
            if table is None and inside == key:
                return f"{path}, line {number}"
        elif inside == table and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]", line):
            return f"{path}, line {number}"
    return path


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
    files = ((path, read_file(path, _is_command)) for path in file_paths())
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
    for old, new in RENAMED.items():
        for name in sorted(names):
            now = name.removesuffix(old.upper()) + new.upper()
            if name.endswith(f"_{old.upper()}") and now in declared:
                raise UsageError(f"{name} is called {now} now; set that instead")
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
    if RENAMED.get(entry.key) in names:
        raise UsageError(f"{entry.place}: {entry.key} is called {RENAMED[entry.key]} now; write that instead")
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
