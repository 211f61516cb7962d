"""How option values are written: percentages, watts, seconds, lists. Each error says what is allowed.

Every number has a range that fits its unit, so that nothing that is made from one can be endless, in size or in time.
"""

import argparse
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from autocap.text import did_you_mean

MOST_CAPS = 2000  # of a list or a grid; a strategy looks at all of them whenever it is asked


def too_fine(min_w: float, max_w: float, step_w: float) -> str | None:
    """Why that step from cap to cap is too small for that range, watts; `None` where it is not."""
    steps = (max_w - min_w) / step_w
    if steps <= MOST_CAPS - 2:  # beside the two ends
        return None
    least_w = math.ceil((max_w - min_w) / (MOST_CAPS - 2) * 1000) / 1000
    return (
        f"a step of {step_w:g} W makes {steps:.4g} caps between {min_w:g} and {max_w:g} W, and at most {MOST_CAPS} can "
        f"be searched; pass --cap-step {least_w:g} or more"
    )


LOOPBACK = "127.0.0.1"
MOST_GPUS = 1024  # of one list
MOST_SETS = 64
MOST_PID = 2**31 - 1  # what a process number can be; the kernel gives far smaller ones
_SHOWN = 60  # characters of a value that is wrong

# The smallest above 0 and the largest number of each unit.
_RANGES = {
    "watts": (1e-3, 1e6),
    "seconds": (1e-3, 1e8),
    "money per kWh": (1e-9, 1e9),
    "money per device hour": (1e-9, 1e9),
    "grams of CO2 per kWh": (1e-6, 1e6),
    "money per tonne of CO2": (1e-9, 1e9),
    "percent": (1e-6, 1e6),
}
LARGEST = 1e9  # of a number without a unit
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[+-]?(inf|infinity|nan)", re.ASCII | re.IGNORECASE)


def shown(text: str, most: int = _SHOWN) -> str:
    """A value as an error quotes it: no longer than a line is read. most: characters."""
    return f"'{text}'" if len(text) <= most else f"'{text[:most]}…' ({len(text)} characters)"


def plain(value: float) -> str:
    """A bound as it is written: 1000000, 0.001."""
    return f"{value:.10g}"


def number_or_none(text: str) -> float | None:
    """The number that a text means, perhaps infinite or not a number by name; `None` for any other.

    Stricter than Python, which also takes the digits of other scripts, underscores and blanks around.
    """
    return float(text) if _NUMBER.fullmatch(text) or _NOT_FINITE.fullmatch(text) else None


def _number(text: str, what: str) -> float:
    value = number_or_none(text)
    if value is None:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a number; {what}")
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{shown(text)} is not finite; {what}")
    return value


def number(text: str) -> float:
    """A number of no unit."""
    what = f"give a finite number, at most {plain(LARGEST)}"
    value = _number(text, what)
    return _within(value, abs(value) <= LARGEST, what)


def _within(value: float, allowed: bool, what: str) -> float:
    if not allowed:
        raise argparse.ArgumentTypeError(f"{value:g} is out of range; {what}")
    return value


def positive(unit: str, or_else: str = "") -> Callable[[str], float]:
    """A reader of numbers above 0. or_else: what else the option takes."""
    least, most = _RANGES[unit]
    return _ranged(f"give a number above 0, in {unit}{or_else}: {plain(least)} to {plain(most)}", least, most)


def not_negative(unit: str) -> Callable[[str], float]:
    """A reader of numbers that are 0 or more."""
    least, most = _RANGES[unit]
    return _ranged(f"give 0 or more, in {unit}: 0, or {plain(least)} to {plain(most)}", least, most, or_0=True)


def _ranged(what: str, least: float, most: float, *, or_0: bool = False) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = _number(text, what)
        if value < 0 or (value == 0 and not or_0):
            raise argparse.ArgumentTypeError(f"{value:g} is {'below 0' if or_0 else 'not above 0'}; {what}")
        return abs(_within(value, value == 0 or least <= value <= most, what))

    return read


def between(low: float, high: float, unit: str) -> Callable[[str], float]:
    """A reader of numbers from low to high."""
    what = f"give {low:g} to {high:g} {unit}"

    def read(text: str) -> float:
        value = _number(text, what)
        return _within(value, low <= value <= high, what)

    return read


def percentage(text: str) -> float:
    """`5` or `5%`, as a share: 0.05. Above 0."""
    least, most = _RANGES["percent"]
    what = f"give a percentage above 0, such as 5 or 5%: {plain(least)} to {plain(most)}"
    return _ranged(what, least, most)(text.removesuffix("%")) / 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentage:
    """A share, above 0: percent in text (`5%`, or `5`), a plain share as a number of Python's (0.05), as in JSON. A
    number that can hardly be meant as what it would be is refused, with both readings.

    least: percent; a smaller number without its sign looks like a share. most: a number of Python's from there on looks
    like percent.
    """

    least: float
    most: float

    def __call__(self, text: str) -> float:
        """The share that a text means. Raises ArgumentTypeError."""
        share = percentage(text)
        if not text.endswith("%") and 100 * share < self.least:
            share_pct = plain(float(f"{1e4 * share:.12g}"))
            raise argparse.ArgumentTypeError(
                f"{text} would be {text} %, and as a share {share_pct} %; write {share_pct}% or {text}%"
            )
        return share

    def text_of(self, share: float) -> str:
        """A number of Python's as text. Raises ArgumentTypeError."""
        if not share < self.most:
            as_share, as_percent = f"{100 * share:.12g}%", f"{share:g}%"
            raise argparse.ArgumentTypeError(
                f"{share:g} would be {as_share}, as numbers are shares, and {as_percent} in percent; give "
                f"'{as_share}' or {share / 100:g}"
            )
        return f"{100 * share:.12g}%"


def _whole(text: str, least: int, most: int, wrong: str) -> int:
    # The length first: Python refuses to read thousands of digits, and in words of its own.
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{shown(text)} {wrong}")
    return int(text)


def pid(text: str) -> int:
    """A process number."""
    return _whole(text, 1, MOST_PID, f"is no process number; give one above 0, at most {MOST_PID}")


def seed(text: str) -> int:
    """A whole number, 0 or more."""
    return _whole(text, 0, 2**32 - 1, f"is not a whole number, 0 or more, at most {2**32 - 1}")


def count(text: str, most: int = 10**12) -> int:
    """A whole number above 0."""
    return _whole(text, 1, most, f"is not a whole number above 0, at most {most}")


def repeats(text: str) -> int:
    """How often something is run."""
    return count(text, 1000)


def watts_list(text: str) -> tuple[float, ...]:
    """`100,120,140`: watts, ascending and distinct whatever the order given."""
    read = positive("watts")
    parts = text.split(",")
    if len(parts) > MOST_CAPS:
        raise argparse.ArgumentTypeError(f"these are {len(parts)} caps; give at most {MOST_CAPS}")
    return tuple(sorted({read(part.strip(" ")) for part in parts}))


_GPU = re.compile(r"\d{1,4}(-\d{1,4})?|[A-Za-z][\w-]{0,99}", re.ASCII)


def gpu_list(text: str) -> tuple[str, ...]:
    """`0,2-3,GPU-…`: indices, ranges and UUIDs; ranges are spelt out."""
    found: dict[str, None] = {}
    for part in text.split(","):
        found |= dict.fromkeys(_gpus(part.strip(" ")))
        if len(found) > MOST_GPUS:
            raise argparse.ArgumentTypeError(f"{shown(text)} names more than {MOST_GPUS} GPUs; give at most so many")
    return tuple(found)


def _gpus(part: str) -> Iterator[str]:
    if not _GPU.fullmatch(part):
        raise argparse.ArgumentTypeError(
            f"{shown(part)} is no GPU; give indices, ranges like 0-3 or UUIDs, by comma, an index of 4 digits at most"
        )
    first, dash, last = part.partition("-")
    if not (first.isdigit() and dash):
        yield part
        return
    if int(first) > int(last):
        raise argparse.ArgumentTypeError(f"the range {part} runs backwards; give the lower index first")
    yield from map(str, range(int(first), int(last) + 1))


def gpu_sets(text: str) -> tuple[tuple[str, ...], ...]:
    """`0;0,1;0-3`: sets of GPUs, each as `gpu_list` reads it."""
    parts = text.split(";")
    if len(parts) > MOST_SETS:
        raise argparse.ArgumentTypeError(f"these are {len(parts)} sets of GPUs; give at most {MOST_SETS}")
    return tuple(gpu_list(part) for part in parts)


_IPV6 = r"[0-9A-Fa-f:.]{2,45}(%\w{1,15})?"  # with the name of an interface
_ADDRESS = re.compile(rf"{_IPV6}|[A-Za-z0-9-]{{1,63}}(\.[A-Za-z0-9-]{{1,63}})*", re.ASCII)


def endpoint(text: str) -> tuple[str, int]:
    """`9101`, on loopback, `0.0.0.0:9101` or `[::]:9101`: where to listen."""
    address, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        raise argparse.ArgumentTypeError(f"{shown(text)} is no port; give 1 to 65535, or ADDRESS:PORT")
    address = address.removeprefix("[").removesuffix("]") or LOOPBACK
    if not _ADDRESS.fullmatch(address) or len(address) > 253:
        raise argparse.ArgumentTypeError(f"{shown(address)} is no address to listen on; give ADDRESS:PORT or a port")
    return address, int(port)


def key_value(text: str) -> tuple[str, str]:
    """`KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not KEY=VALUE")
    return key, value


def word(text: str) -> str:
    """A name, or whatever else is one text."""
    if not text:
        raise argparse.ArgumentTypeError("the value is empty; give one, or leave the option out")
    if "\0" in text:
        raise argparse.ArgumentTypeError(f"{shown(text)} holds a NUL character; leave it out")
    return text


def currency(text: str) -> str:
    """The sign or code of a currency, such as € or EUR."""
    if not 1 <= len(text) <= _CURRENCY or not text.isprintable() or any(one.isspace() or one.isdigit() for one in text):
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is no currency; give its sign or code, such as € or EUR: at most {_CURRENCY} characters, "
            "neither digits nor blanks"
        )
    return text


_CURRENCY = 8  # characters


def path(text: str) -> Path:
    """The path of a file or directory."""
    word(text)
    try:
        name = text.encode("utf-8", "surrogateescape")  # as the kernel gets it
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{shown(text)} can name no file; give another path") from None
    names = name.split(b"/")
    if len(name) > _PATH_BYTES or max(map(len, names)) > _NAME_BYTES or len(names) > _NAMES:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is longer than a path can be; give at most {_PATH_BYTES} bytes, {_NAME_BYTES} in a name, "
            f"and {_NAMES} names"
        )
    return Path(text)


_PATH_BYTES, _NAME_BYTES = 4095, 255  # as Linux has them
_NAMES = 200  # one in another: each may have to be made, held open, and removed


_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def truth(text: str) -> bool:
    """`true`, `yes` or `1`, or their opposites."""
    if text.lower() not in _TRUTHS:
        raise argparse.ArgumentTypeError(f"{shown(text)} is neither true nor false; give one of {', '.join(_TRUTHS)}")
    return _TRUTHS[text.lower()]


def retune(text: str) -> float | str:
    """When to tune anew: auto, never, or seconds."""
    return text if text in ("auto", "never") else positive("seconds", ", or auto, or never")(text)


def node_power(text: str) -> str:
    """`none`, watts, `rapl`, `ipmi`, `slurm` or `command:CMD`."""
    kind, _, command = text.partition(":")
    if text in ("none", "rapl", "ipmi", "slurm") or (kind == "command" and command.strip()):
        return word(text)
    if number_or_none(text) is None:
        what = "choose none, watts, rapl, ipmi, slurm or command:CMD"
        meant = did_you_mean(kind, ("none", "rapl", "ipmi", "slurm", "command"))
        raise argparse.ArgumentTypeError(f"unknown source {shown(text)}{meant}; {what}")
    return plain(positive("watts")(text))


def energy_price(text: str) -> float | str:
    """Money per kWh, or where it is read as it changes: `file:PATH`, `command:CMD` or a service, such as
    `entsoe:ZONE`."""
    return _source(text, "money per kWh")


def carbon(text: str) -> float | str:
    """Grams of CO₂ per kWh, or where they are read: `file:PATH`, `command:CMD` or a service, such as `gb`."""
    return _source(text, "grams of CO2 per kWh")


def _source(text: str, unit: str) -> float | str:
    """Which services there are is not known here: `prices.reading.check`."""
    if number_or_none(text) is not None:
        return not_negative(unit)(text)
    kind, colon, rest = text.partition(":")
    if colon and not rest.strip():
        raise argparse.ArgumentTypeError(
            f"{shown(text)} names nothing; give a number, in {unit}, file:PATH, command:CMD or a service"
        )
    if kind == "file" and colon:
        path(rest)
    return word(text)


def moment(text: str) -> float:
    """A time with its zone, in seconds since 1970."""
    what = "give a date and time with a zone, such as 2030-01-31T07:00+01:00 or 2030-01-31T06:00Z"
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no time; {what}") from None
    if found.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{shown(text)} has no zone; {what}")
    return found.timestamp()


def nodes(text: str) -> str:
    """`slurm`, `ray:ADDRESS` or another transport's name: which there are is the registry's to know."""
    name, colon, address = word(text).partition(":")
    if not name or (colon and not address):
        raise argparse.ArgumentTypeError(f"{shown(text)} is no NAME or NAME:ADDRESS; choose slurm, ray or ray:ADDRESS")
    return text


_JOB = re.compile(r"\d{1,20}(_\d{1,20}|\+\d{1,20})?", re.ASCII)
_ENGINE_JOB = re.compile(r"\w[\w.+-]{0,127}", re.ASCII)


def job_id(text: str) -> str:
    """The number of a Slurm job, of an element of an array, or of a component of a heterogeneous one."""
    if not _JOB.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{shown(text)} is no Slurm job; give its number, such as 4711 or 4711_2")
    return text


def engine_job(text: str) -> str:
    """A job as Slurm or Ray calls it, which each looks up; Ray's submissions may have any name."""
    if not _ENGINE_JOB.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is no job; give its id, such as 4711 or 4711_2 in Slurm, 01000000 or raysubmit_… in Ray"
        )
    return text


_KNOB = re.compile(r"[a-z][a-z0-9-]{,31}", re.ASCII)


def knob(text: str) -> str:
    """What is turned; which knobs there are is the device's to know."""
    if not _KNOB.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{shown(text)} is no knob; its name has small letters, digits and hyphens")
    return text


def words(text: str) -> tuple[str, ...]:
    """Several, by comma: at most so many as caps."""
    found = tuple(word(one.strip()) for one in text.split(","))
    if len(found) > MOST_CAPS:
        raise argparse.ArgumentTypeError(f"{len(found)} settings are too many; give at most {MOST_CAPS}")
    return found


def via(text: str) -> str:
    """Who sets limits. DCGM is refused: what is set through it cannot be put back as it was found (its config module
    keeps the last limit as a target, which it has no way to forget, and takes whole watts)."""
    if text == "dcgm":
        raise argparse.ArgumentTypeError(
            "dcgm cannot put back what it found: DCGM keeps the last limit that was set through it as its target, for "
            "good, applies that anew after a reset of the GPU, and takes whole watts; choose auto, direct, helper or "
            "zeusd"
        )
    known = ("auto", "direct", "helper", "zeusd")
    if text not in known:
        raise argparse.ArgumentTypeError(
            f"unknown way to set limits {shown(text)}{did_you_mean(text, known)}; choose {', '.join(known)}"
        )
    return text
