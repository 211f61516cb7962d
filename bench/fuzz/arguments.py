"""Command lines: the options that a command's own parser has, with values that it may find hard to take."""

import argparse
from functools import cache
from random import Random

from autocap import registry
from autocap.cli import INSIDE, Parser, command_named
from bench.fuzz import texts

COMMANDS = (*registry.ours("commands"), INSIDE)
_MANY = (20, 2000)
# What a value usually looks like, so that the others beside it are looked at as well.
_USUAL = {
    "--metric": ("energy", "edp", "eds", "cost"),
    "--k": ("2", "1.5"),
    "--strategy": (
        "model",
        "golden",
        "linear",
        "fixed",
        "bandit",
        "gpoeo",
        "nothing",
        "a.b:C",
        "autocap:tune",
        ":",
        "a:",
    ),
    "--strategy-option": ("points=5", "cap=150", "points=", "=5", "points"),
    "--device": (
        "nvml",
        "rapl",
        "emulated",
        "auto",
        "emulated:tesla-v100/vgg19",
        "emulated:",
        "nvml:",
        "emulated:../x",
    ),
    "--gpus": ("0", "0,1", "0-3", "0;1", "GPU-abc", "0;0,1;0-3"),
    "--progress": ("auto", "steps", "calls", "calls:a:b", "calls:", "period", "speed", "regex:step", "regex:", "regex"),
    "--node-power": ("none", "100", "rapl", "ipmi", "slurm", "command:"),
    "--caps": ("100", "150,200", "150,150"),
    "--min-cap": ("100", "150"),
    "--max-cap": ("200", "260"),
    "--cap-step": ("5", "0.5"),
    "--retune": ("auto", "never", "300"),
    "--order": ("random", "descending"),
    "--prometheus": ("9101", "127.0.0.1:9102", "[::1]:9103", "0.0.0.0:9104", "[:1", "256.1.1.1:9105", "x y:9106"),
    "--out": ("out", "out/deeper", "/dev/null/out", "out/../out", "stdout"),
    "--warm-start": (".", "/dev/null", "nowhere"),
    "--pid": ("1", "2", "999999"),
    "--window": ("1", "60"),
    "--step-map-fd": ("0", "3", "-1", "999999"),
}
_FILES = ("--out", "--warm-start")  # no random text: one could name a directory of the machine
_NAMES = ("--strategy", "--device", "--node-power")  # nor here: one could name code


@cache
def options(command: str) -> tuple[argparse.Action, ...]:
    """The options of a command, help left out; of one that needs it, what is no option is another matter."""
    made = command_named(command)
    parser = Parser(prog=f"autocap {command}", add_help=False, allow_abbrev=False)
    made.prepare_parser(parser)
    return tuple(action for action in parser._actions if action.option_strings)


def some(random: Random, command: str) -> list[str]:
    """A few of a command's options, once or more often, each with a value."""
    given: list[str] = []
    there = options(command)
    for _ in range(random.choice((0, 1, 1, 1, 2, 3, 6))):
        if not there:
            break
        option = random.choice(there)
        times = 1 if random.random() < 0.97 else random.choice(_MANY)
        for _ in range(times):
            given += one(random, option)
    if random.random() < 0.05:
        given.insert(
            random.randint(0, len(given)), random.choice((*texts.TEXTS, "--nothing", "--verb", "-x", "-vv", "@file"))
        )
    return given


def one(random: Random, option: argparse.Action) -> list[str]:
    """One option with a value, in one word or two."""
    flag = random.choice(option.option_strings)
    if option.nargs == 0:
        return [flag] if random.random() < 0.9 else [f"{flag}={texts.text(random)}"]
    text = value(random, option.option_strings[-1])
    if random.random() < 0.05:
        return [flag]
    joined = flag.startswith("--") and random.random() < 0.6
    return [f"{flag}={text}"] if joined else [flag, text]


def value(random: Random, flag: str) -> str:
    """A value for an option."""
    usual = _USUAL.get(flag, ("1", "10"))
    if random.random() < 0.3:
        return random.choice(usual)
    if flag in _FILES:
        return random.choice(
            (*usual, "a" * 300, "a" * 5000, "a/" * 2500, "", "\0", "a\0b", "\udcff", "\x1b[2J", "--", "-", "a\nb")
        )
    if flag in _NAMES:
        return random.choice((random.choice(usual) + random.choice(texts.TEXTS), texts.number(random), *usual))
    if flag == "--progress" and random.random() < 0.7:
        return f"regex:{texts.pattern(random)}"
    if random.random() < 0.4:
        return texts.text(random)
    return texts.number(random)
