"""`autocap completion`.

Made by hand rather than by shtab, which writes no fish, takes one parser with all commands in it, and knows nothing of
a job's command behind the options.
"""

import argparse

from autocap.streams import put

SHELLS = ("bash", "zsh", "fish")


class Completion:
    """Print what makes a shell complete autocap's commands, options and values, and the command of a job.

    For bash, in ~/.bashrc: eval "$(autocap completion bash)"
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("shell", choices=SHELLS, help="the shell to complete in")

    def run(self, args: argparse.Namespace) -> int:
        from autocap.cli.completion import bash, fish, zsh
        from autocap.cli.completion.syntax import commands

        script = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}[args.shell]
        put(*script(commands()).splitlines())
        return 0
