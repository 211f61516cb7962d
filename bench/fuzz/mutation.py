"""Lines with something wrong: bytes that changed, JSON values that nobody expects."""

import json
from random import Random

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
