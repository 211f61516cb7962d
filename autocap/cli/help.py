"""`autocap help`."""

import argparse

from autocap.config import values


class Help:
    """Show what autocap can do, or the options of one command, as `autocap COMMAND --help` does."""

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("command", metavar="COMMAND", nargs="?", type=values.word, help="the command to explain")

    def run(self, args: argparse.Namespace) -> int:
        from autocap.cli import overview, parser_of  # which import this module by its name

        (overview() if args.command is None else parser_of(args.command)[1]).print_help()
        return 0
