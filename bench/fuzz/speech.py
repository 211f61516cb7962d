"""What hostile clients say and do: scripts of steps over one or several connections, and lines with something wrong."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from bench.fuzz.law import ARRIVALS_MW, Law


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One case, which those two make again at any time."""

    seed: int
    index: int

    def random(self) -> Random:
        return Random(f"helper {self.seed} {self.index}")

    def __str__(self) -> str:
        return f"python -m bench fuzz --seed {self.seed} --case {self.index}"


_BYTES = (b"\0" * 1000, b"\n" * 1000, b"[" * 5000, b'"', b",", b"\xff\xfe", b"\x1b[2J")
ODD_TEXTS = (
    *("", " ", "--", "%s%n%x", "{0}", "~", "$HOME", "../" * 60, "/dev/full/x", "<script>", "\x1b[2J", "\0", "\ud800"),
    *("\x1b]52;c;aGVsbG8=\x07", "\u202egpj.exe", "\n", "٣", "\ufeff", "\U0001f525", "a\u0300" * 100, "a" * 5000),
)
_VALUES = (
    *("null", "true", "[]", "{}", "[[]]", '{"":null}', "[null]", '"null"', "NaN", "Infinity", "-Infinity", "1e400"),
    *("0", "-1", "0.5", "1e308", "5e-324", "1e-7", "9223372036854775808", "9" * 400, "-" + "9" * 5000),
    *(
        f"{opening * depth}1{closing * depth}"
        for opening, closing in (("[", "]"), ("[", ""), ('{"a":', "}"))
        for depth in (50, 1000)
    ),
    *map(json.dumps, ODD_TEXTS),
)


def in_bytes(random: Random, data: bytes) -> bytes:
    """With some bytes flipped, cut off, repeated, moved or made up."""
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8, 64))):
        at, to = sorted((random.randint(0, len(found)), random.randint(0, len(found))))
        which = random.randrange(6)
        if which == 0 and found:
            found[min(at, len(found) - 1)] ^= 1 << random.randrange(8)
        elif which == 1:
            del found[at : min(to, at + 200)]
        elif which == 2:
            found[at:at] = found[at : min(to, at + 500)] * random.choice((1, 3, 30))
        elif which == 3:
            found[at:at] = random.randbytes(random.choice((1, 4, 300)))
        elif which == 4:
            found[at:at] = random.choice(_BYTES)
        elif random.random() < 0.2:
            del found[at:]
    return bytes(found)


def json_line(random: Random, line: bytes) -> bytes:
    """A message, a line that holds an object, with something wrong."""
    if random.random() < 0.1:
        return in_bytes(random, line)
    parts = [(name, json.dumps(value)) for name, value in json.loads(line).items()]
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(parts))
        name, value = parts[at]
        parts[at : at + 1] = random.choice(
            (
                [(name, random.choice(_VALUES))],
                [(name, random.choice(_VALUES))],
                [(name, f"[{', '.join([value] * random.choice((1, 2, 1000)))}]")],
                [(name, json.dumps(value))],
                [(name, value.replace("]", f", {random.choice(_VALUES)}]"))],
                [(name, value), (name, random.choice(_VALUES))],
                [(name, value), (random.choice((name + "_", *ODD_TEXTS)), value)],
                [] if len(parts) > 1 else [(name, value)],
            )
        )
    return f"{{{', '.join(f'{json.dumps(name)}: {value}' for name, value in parts)}}}".encode()


Act = Literal["open", "send", "read", "close", "half", "mute", "wait", "die"]
_LONGEST = 9000  # bytes of one mutated line; what is longer than a message is refused at its first 4096
_LINE = 4096
_OPS = ("hello", "devices", "lend", "rehearse", "set", "beat", "restore", "give_back", "status")
_PLAIN = ("hello", "devices", "status", "beat", "rehearse", "restore", "give_back")
_LENDS = 0.08  # share of scripts that ask for a lease, for which the helper starts a watchdog


@dataclass(frozen=True, slots=True)
class Step:
    """open, close, half (no more is to come), read (until all is answered), mute (answers are read no more), wait; die:
    the rest is done by a process that is killed at its end."""

    act: Act
    connection: int = 0
    data: bytes = b""
    seconds: float = 0.0


def script(random: Random, law: Law, uid: int) -> list[Step]:
    """One case."""
    which = random.randrange(100)
    if which < 25:
        return _said(random, _valid(random, law, uid))
    if which < 55:
        return _said(random, _mutated(random, _valid(random, law, uid)))
    if which < 70:
        return _interleaved(random, law, uid)
    if which < 78:
        return _said(random, [_long(random)])
    if which < 84:
        lines = [_line(random, random.choice(_PLAIN)) for _ in range(random.choice((60, 150, 300)))]
        return [Step("open"), Step("send", data=b"".join(lines)), Step("read"), Step("close")]
    if which < 89:
        return _slow(random)
    if which < 97:
        return _left(random, law, uid)
    if which == 97:
        return [Step("die"), *_said(random, _lease(random, law, uid))[:-1]]
    if which == 98:
        return [Step("open"), Step("wait", seconds=random.choice((0.3, 1.0))), Step("close")]
    crowd = [Step("open", number) for number in range(20)]
    said = [Step("send", number, _line(random, "hello")) for number in range(20)]
    return [*crowd, *said, *(Step("read", number) for number in range(20)), Step("close")]


def _line(random: Random, op: str, **own: object) -> bytes:
    body = {"v": 1, "id": random.choice((1, 2, 7, random.getrandbits(40))), "op": op, **own}
    return json.dumps(body).encode() + b"\n"


def _lease(random: Random, law: Law, uid: int) -> list[bytes]:
    """A lease, of devices that they may have or not, and caps of which some are none."""
    allowed = [gpu for gpu in range(len(law.uuids)) if law.may(uid, gpu) is not None]
    others = [gpu for gpu in range(len(law.uuids)) if gpu not in allowed]
    gpus = random.sample(allowed, random.randint(1, min(2, len(allowed)))) if allowed else []
    if random.random() < 0.25 or not gpus:
        gpus = [*gpus, *random.sample(others, min(len(others), random.choice((1, 2))))]
    found = [_line(random, "lend", devices=[law.uuids[gpu] for gpu in gpus])]
    for _ in range(random.choice((1, 3, 8))):
        if random.random() < 0.5:
            found.append(_line(random, "set", watts=[_watts(random, law, uid, gpu) for gpu in gpus]))
        else:
            found.append(_line(random, random.choice(("beat", "beat", "rehearse", "restore", "status", "devices"))))
    return [*found, *([_line(random, "give_back")] if random.random() < 0.5 else [])]


def _watts(random: Random, law: Law, uid: int, gpu: int) -> float:
    low_mw, high_mw = law.may(uid, gpu) or (100_000, 260_000)
    edges = (low_mw, high_mw, low_mw - 1, high_mw + 1, ARRIVALS_MW[gpu], ARRIVALS_MW[gpu] + 1, 0, 10**9, -1, 5e-324)
    if random.random() < 0.4:
        return random.choice(edges) / 1000
    return round(random.uniform(low_mw, high_mw)) / 1000


def _valid(random: Random, law: Law, uid: int) -> list[bytes]:
    if random.random() < _LENDS:
        return _lease(random, law, uid)
    found = [_line(random, random.choice(_PLAIN)) for _ in range(random.choice((1, 4, 10, 20)))]
    if random.random() < 0.3:
        found.append(_line(random, "set", watts=[_watts(random, law, uid, random.randrange(len(law.uuids)))]))
    if random.random() < 0.1:  # of what there is none of, so that no watchdog is started
        found.append(_line(random, "lend", devices=[random.choice(ODD_TEXTS)[:200]]))
    return found


def _mutated(random: Random, lines: Sequence[bytes]) -> list[bytes]:
    found = list(lines)
    for at in range(len(found)):
        if random.random() < 0.4:
            found[at] = json_line(random, found[at].rstrip(b"\n"))[:_LONGEST] + b"\n"
    if random.random() < 0.2:
        odd = (b"\n", b"\r\n", b"\0\n", b"\xff\xfe\n", b"null\n", b"[]\n", b"{}\n", b'{"v":1}\n', b"\xef\xbb\xbf{}\n")
        found.insert(random.randrange(len(found) + 1), random.choice(odd))
    return found


def _long(random: Random) -> bytes:
    size = random.choice((_LINE - 1, _LINE, _LINE + 1, 5000, 70_000))
    if random.random() < 0.5:
        return b"x" * size + random.choice((b"", b"\n"))
    line = _line(random, "hello").rstrip(b"\n")
    return line + b" " * (size - 1 - len(line)) + b"\n"


def _said(random: Random, lines: Sequence[bytes], connection: int = 0) -> list[Step]:
    """One connection that says this: at once, a line at a time, or in pieces."""
    which = random.randrange(3)
    data = b"".join(lines)
    steps = [Step("open", connection)]
    if which == 0:
        steps.append(Step("send", connection, data))
    elif which == 1:
        for line in lines:
            steps += [Step("send", connection, line), Step("read", connection)]
    else:
        cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.choice((1, 3, 12)))) if data else []
        for begin, end in zip((0, *cuts), (*cuts, len(data)), strict=True):
            steps.append(Step("send", connection, data[begin:end]))
            if random.random() < 0.2:
                steps.append(Step("wait", connection, seconds=random.choice((0.0, 0.001, 0.02))))
    return [*steps, Step("read", connection), Step("close", connection)]


def _interleaved(random: Random, law: Law, uid: int) -> list[Step]:
    parts = []
    for number in range(random.randint(2, 5)):
        lines = _valid(random, law, uid)
        parts.append(_said(random, _mutated(random, lines) if random.random() < 0.3 else lines, number))
    found = []
    while parts:
        part = random.choice(parts)
        found.append(part.pop(0))
        parts = [one for one in parts if one]
    return found


def _slow(random: Random) -> list[Step]:
    """Somebody who asks much and reads nothing, for a while or for ever."""
    lines = b"".join(_line(random, "devices") for _ in range(random.choice((20, 80, 200))))
    end = [Step("read")] if random.random() < 0.3 else []
    return [
        Step("open"),
        Step("mute"),
        Step("send", data=lines),
        Step("wait", seconds=random.choice((0.05, 0.7))),
        *end,
    ]


def _left(random: Random, law: Law, uid: int) -> list[Step]:
    """Somebody who goes, or falls silent, in the middle."""
    lines = b"".join(_lease(random, law, uid) if random.random() < _LENDS else _valid(random, law, uid))
    data = lines[: random.randrange(len(lines) + 1)]
    which = random.randrange(4)
    if which == 0:
        return [Step("open"), Step("send", data=data), Step("close")]
    if which == 1:
        return [Step("open"), Step("send", data=data), Step("half"), Step("read"), Step("close")]
    if which == 2:
        return [Step("open"), Step("mute"), Step("send", data=data), Step("close")]
    silent_s = random.choice((0.2, 0.2, 0.2, 1.8))
    more = Step("send", data=b"\n" + _line(random, "beat"))
    return [Step("open"), Step("send", data=data), Step("wait", seconds=silent_s), more, Step("read"), Step("close")]
