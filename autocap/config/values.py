"""How option values are written: percentages, watts, seconds, lists. Each error says what is allowed."""

import argparse
import math
import re
from collections.abc import Callable

LOOPBACK = "127.0.0.1"


def _number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number; {what}") from None
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"'{text}' is not finite; {what}")
    return value


def number(text: str) -> float:
    """Any finite number."""
    return _number(text, "give a finite number")


def _numbers(allowed: Callable[[float], bool], wrong: str, what: str) -> Callable[[str], float]:
    """A reader of finite numbers. wrong: what others are. what: which to give."""

    def read(text: str) -> float:
        value = _number(text, what)
        if not allowed(value):
            raise argparse.ArgumentTypeError(f"{value:g} {wrong}; {what}")
        return value

    return read


def positive(unit: str) -> Callable[[str], float]:
    """A reader of finite numbers above 0."""
    return _numbers(lambda value: value > 0, "is not above 0", f"give a number above 0, in {unit}")


def not_negative(unit: str) -> Callable[[str], float]:
    """A reader of finite numbers that are 0 or more."""
    return _numbers(lambda value: value >= 0, "is below 0", f"give 0 or more, in {unit}")


def between(low: float, high: float, unit: str) -> Callable[[str], float]:
    """A reader of numbers from low to high."""
    return _numbers(lambda value: low <= value <= high, "is out of range", f"give {low:g} to {high:g} {unit}")


def percentage(text: str) -> float:
    """`5` or `5%`, as a share: 0.05. Above 0."""
    read = _numbers(lambda value: value > 0, "is not above 0", "give a percentage above 0, such as 5 or 5%")
    return read(text.removesuffix("%")) / 100


def _whole(text: str, least: int, wrong: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise argparse.ArgumentTypeError(f"'{text}' {wrong}")
    return int(text)


def pid(text: str) -> int:
    """A process number."""
    return _whole(text, 1, "is no process number; give one above 0")


def seed(text: str) -> int:
    """A whole number, 0 or more."""
    return _whole(text, 0, "is not a whole number, 0 or more")


def count(text: str) -> int:
    """A whole number above 0."""
    return _whole(text, 1, "is not a whole number above 0")


def watts_list(text: str) -> tuple[float, ...]:
    """`100,120,140`: watts, ascending and distinct whatever the order given."""
    read = positive("watts")
    return tuple(sorted({read(part.strip()) for part in text.split(",")}))


_GPU = re.compile(r"\d{1,4}(-\d{1,4})?|[A-Za-z][\w-]*")


def gpu_list(text: str) -> tuple[str, ...]:
    """`0,2-3,GPU-…`: indices, ranges and UUIDs; ranges are spelt out."""
    found: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if not _GPU.fullmatch(part):
            raise argparse.ArgumentTypeError(f"'{part}' is no GPU; give indices, ranges like 0-3 or UUIDs, by comma")
        first, dash, last = part.partition("-")
        if first.isdigit() and dash:
            if int(first) > int(last):
                raise argparse.ArgumentTypeError(f"the range {part} runs backwards; give the lower index first")
            found += [str(index) for index in range(int(first), int(last) + 1)]
        else:
            found.append(part)
    return tuple(dict.fromkeys(found))


def gpu_sets(text: str) -> tuple[tuple[str, ...], ...]:
    """`0;0,1;0-3`: sets of GPUs, each as `gpu_list` reads it."""
    return tuple(gpu_list(part) for part in text.split(";"))


def endpoint(text: str) -> tuple[str, int]:
    """`9101`, on loopback, `0.0.0.0:9101` or `[::]:9101`: where to listen."""
    address, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise argparse.ArgumentTypeError(f"'{text}' is no port; give 1 to 65535, or ADDRESS:PORT")
    return address.removeprefix("[").removesuffix("]") or LOOPBACK, int(port)


def key_value(text: str) -> tuple[str, str]:
    """`KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is not KEY=VALUE")
    return key, value


def retune(text: str) -> float | str:
    """When to tune anew: auto, never, or seconds."""
    return text if text in ("auto", "never") else positive("seconds, or auto, or never")(text)


def node_power(text: str) -> str:
    """`none`, watts, `rapl`, `ipmi` or `command:CMD`."""
    kind, _, command = text.partition(":")
    if text in ("none", "rapl", "ipmi") or (kind == "command" and command.strip()):
        return text
    try:
        float(text)
    except ValueError:
        what = "choose none, watts, rapl, ipmi or command:CMD"
        raise argparse.ArgumentTypeError(f"unknown source '{text}'; {what}") from None
    return f"{positive('watts')(text):.10g}"
