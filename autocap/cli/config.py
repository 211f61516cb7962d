"""`autocap config`."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from autocap.cli import settings
from autocap.cli.options import attach_config, run_config
from autocap.cli.run import sweep_config
from autocap.config.option import CommandOption, TakenSetting, Threshold, thresholds
from autocap.knobs import known
from autocap.text import put, put_json

BUILT_IN = "built-in"
_COMMAND = "CMD"  # of a job that is not given here


class Config:
    """Show every setting of a command, and where it comes from: the options that are given here as well, a variable
    AUTOCAP_…, ./autocap.toml, the user's own file, or what is built in.

    COMMAND may be followed by options of it: `autocap config run --metric energy`.
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "autocap config [COMMAND [options]] [--all] [--json]"
        parser.add_argument(
            "command", metavar="COMMAND", nargs="?", choices=settings.commands(), default="run",
            help=f"{', '.join(settings.commands())} (default: run)",
        )  # fmt: skip
        parser.add_argument(
            "--all", action="store_true",
            help="also the thresholds of measuring and deciding, which no option sets, with unit and reason",
        )  # fmt: skip
        parser.add_argument(
            "--json", action="store_true",
            help="print {command, files, settings}; of each setting option, value, source, and why it is unused; "
            "with --all also thresholds, by room",
        )  # fmt: skip
        for option in _of_any_command().values():
            # A value as text: what it means is the command's to say.
            kind: dict[str, Any] = {"action": "append" if option.repeated else "store"}
            if option.read is None:
                kind = {"action": "store_const", "const": option.const, "dest": option.keyword}
            parser.add_argument(*option.flags, **kind, default=argparse.SUPPRESS, help=argparse.SUPPRESS)

    def run(self, args: argparse.Namespace) -> int:
        given = {keyword: value for keyword, value in vars(args).items() if keyword in _of_any_command()}
        found = settings.settled(
            args.command, [settings.from_command_line(args.command, given), *settings.layers(args.command)]
        )
        args.taken = tuple(
            TakenSetting(name=one.option.name, value=one.text, source=one.source)
            for one in found.values()
            if one.source != settings.COMMAND_LINE and not one.unused
        )
        if settings.of_a_job(args.command):
            _require_usable(args.command, found)
        rows = [_row(option, args.command, found.get(key)) for key, option in settings.options(args.command).items()]
        files = {path: settings.is_file_there(path) for path in settings.file_paths()}
        tuned = _thresholds() if args.all else {}
        if args.json:
            shown: dict[str, object] = {"command": args.command, "files": files, "settings": list(map(asdict, rows))}
            if args.all:
                shown["thresholds"] = {room: list(map(asdict, those)) for room, those in tuned.items()}
            put_json(shown)
        else:
            _show(args.command, rows, files)
            for room, those in tuned.items():
                _show_thresholds(room, those)
        return 0


def _require_usable(command: str, found: Mapping[str, settings.Setting]) -> None:
    """Raises UsageError for settings that the command would refuse."""
    used = {keyword: setting.value for keyword, setting in found.items() if not setting.unused}
    args = argparse.Namespace(**used, taken=(), child=None if command == "attach" else [_COMMAND])
    made = {"attach": lambda: attach_config(args), "sweep": lambda: sweep_config(args).run}.get(
        command, lambda: run_config(args, "run")
    )()
    if ":" in made.strategy:  # somebody's code, which is not run for a look
        return
    from autocap.strategies import registry

    registry.option_values(registry.find(made.strategy), made.strategy_options, known(made.tune.knob))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """value: its text, `None` where nothing is set and nothing built in. unused: why it has no say, or nothing."""

    option: str
    value: str | None
    source: str
    unused: str


def _of_any_command() -> dict[str, CommandOption]:
    found = {key: option for command in settings.commands() for key, option in settings.options(command).items()}
    return {key: option for key, option in found.items() if key != "json"}  # which is this command's own


def _row(option: CommandOption, command: str, setting: settings.Setting | None) -> _Row:
    if setting is None:
        return _Row(option=option.name, value=option.built_in(command), source=BUILT_IN, unused="")
    return _Row(option=option.name, value=setting.text, source=setting.source, unused=setting.unused)


def _thresholds() -> dict[str, list[Threshold]]:
    """By room."""
    from autocap.controller import tuning as of_controller
    from autocap.measurement import tuning as of_measurement

    return {"measurement": thresholds(of_measurement.TUNING), "controller": thresholds(of_controller.TUNING)}


def _show(command: str, rows: Sequence[_Row], files: Mapping[str, bool]) -> None:
    cells = [
        (row.option, row.value or "–", f"{row.source}{f'; no say: {row.unused}' * bool(row.unused)}") for row in rows
    ]
    _put_table((f"autocap {command}", "value", "from"), cells)
    put(*(f"{path} {'is read' if there else 'is not there'}" for path, there in files.items()))


def _show_thresholds(room: str, those: Sequence[Threshold]) -> None:
    cells = [
        (one.name, f"{one.value:g} {one.unit}", f"{one.reason}{f' (bench {one.bench})' * bool(one.bench)}")
        for one in those
    ]
    put("")
    _put_table((room, "value", "what it is"), cells)


def _put_table(titles: tuple[str, str, str], cells: Sequence[tuple[str, str, str]]) -> None:
    from autocap.reports.document import Table
    from autocap.reports.text import show

    show(Table(heading="", titles=titles, rows=tuple(cells), left=(0, 1)))
