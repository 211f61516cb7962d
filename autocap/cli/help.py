"""`autocap help`."""

import argparse
from importlib.resources import files

from autocap.cli.completion import offer
from autocap.config import values
from autocap.text import put


class Help:
    """Show what autocap can do, or the options of one command, as `autocap COMMAND --help` does; or print a page of
    the documentation, such as `no-cap-kept`, or `docs/attach` where a command has the same name."""

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        from autocap.cli import commands  # which imports this module by its name

        explained = parser.add_argument(
            "command", metavar="COMMAND|PAGE", nargs="?", type=values.word, help="the command to explain, or the page"
        )
        offer(explained, commands)
        parser.add_argument("all", metavar="all", nargs="?", choices=("all",), help="of a command: every option")

    def run(self, args: argparse.Namespace) -> int:
        from autocap.cli import commands, overview, parser_of  # which import this module by its name

        name = args.command
        page = None if name is None or name in commands() else _page(name.removeprefix("docs/").removesuffix(".md"))
        if page is not None:
            put(*page.splitlines())
        else:
            (overview() if name is None else parser_of(name)[1]).print_help(whole=args.all is not None)
        return 0


def _page(name: str) -> str | None:
    """The text of a page of the documentation; `None` where there is none of that name."""
    if not name.replace("-", "").isalnum():
        return None
    page = files("autocap.cli") / "docs" / f"{name}.md"
    return page.read_text(encoding="utf-8") if page.is_file() else None
