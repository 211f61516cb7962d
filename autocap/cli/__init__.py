"""The command line: each command is a small object with `prepare_parser` and `run`.

Nothing heavy is imported before a command runs, so `autocap --help` answers at once.
"""

import argparse
import logging
import os
import sys
from importlib import import_module
from typing import NoReturn, Protocol

from autocap.errors import AutocapError, UsageError
from autocap.version import __version__

# name -> module:class and the line that `autocap --help` shows.
_COMMANDS = {
    "run": ("autocap.cli.run:Run", "start a command and tune its power caps while it runs"),
    "attach": ("autocap.cli.run:Attach", "tune a job that runs already"),
    "sweep": ("autocap.cli.sweep:Sweep", "run a command under every cap, and compare what they cost"),
    "devices": ("autocap.cli.devices:Devices", "show the GPUs that there are, and whether their limits can be set"),
    "restore": ("autocap.cli.restore:Restore", "put back what a killed run left behind"),
    "report": ("autocap.cli.report:Report", "show a finished, killed or running run"),
    "period": ("autocap.cli.period:Period", "show what the detector sees in a recorded trace"),
}
_UNLISTED = {"inside": ("autocap.cli.run:Inside", "what autocap.tune starts")}


class Command(Protocol):
    """A command; its docstring is its help."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as every other error of ours."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see `{self.prog} --help`)")


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit status."""
    try:
        _require_trusted()
        return _dispatch(sys.argv[1:] if argv is None else argv)
    except AutocapError as error:
        print(f"autocap: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as in `autocap report … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _require_trusted() -> None:
    """Under sudo, before anything else is imported. Raises UsageError where it might be somebody else's code."""
    if os.geteuid() == 0 and "SUDO_UID" in os.environ:
        from autocap.job.invoking_user import invoking_user
        from autocap.job.trusted_code import require_trusted

        user = invoking_user()
        if user is not None:
            require_trusted(user)


def _dispatch(argv: list[str]) -> int:
    parser = Parser(
        prog="autocap",
        description="Finds the best power cap for a training job while the job runs.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"autocap {__version__}")
    lines = [f"  {name:<9}{summary}" for name, (_, summary) in _COMMANDS.items()]
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(["commands:", *lines, "", "`autocap COMMAND --help` shows a command's options."])
    parser.usage = "autocap [--version] [--help] COMMAND …"
    parser.add_argument("command", metavar="COMMAND", help=argparse.SUPPRESS)
    name = parser.parse_args(argv[:1]).command
    if name not in _COMMANDS | _UNLISTED:
        raise UsageError(f"unknown command '{name}'; choose one of {', '.join(_COMMANDS)}")
    module, _, cls = (_COMMANDS | _UNLISTED)[name][0].partition(":")
    command: Command = getattr(import_module(module), cls)()
    own, child = _split(argv[1:])
    subparser = Parser(prog=f"autocap {name}", description=command.__doc__, allow_abbrev=False)
    command.prepare_parser(subparser)
    args = subparser.parse_args(own)
    args.child = child
    if getattr(args, "verbose", False):
        logging.basicConfig(level=logging.DEBUG, format="autocap: %(name)s: %(message)s")
    return command.run(args)


def _split(argv: list[str]) -> tuple[list[str], list[str] | None]:
    """Our own arguments, and what stands behind the first `--` (`None` where there is none)."""
    if "--" not in argv:
        return argv, None
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


def entry() -> NoReturn:
    """The console script."""
    sys.exit(main())
