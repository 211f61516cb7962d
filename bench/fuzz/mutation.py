"""Lines with something wrong: bytes that changed, JSON values that nobody expects."""

import json
from random import Random

from bench.fuzz import texts

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
_RAW = "@raw@"
_LARGE = 1e200
_DEEP = (50, 500, 1_000, 100_000, 1_000_000)


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
            found[at:at] = random.choice((b"\0" * 1000, b"\n" * 1000, b"[" * 5000, b'"', b",", b"\xff\xfe", b"\x1b[2J"))
        elif random.random() < 0.2:
            del found[at:]
    return bytes(found)


def in_json(random: Random, document: Json, times: int = 1) -> str:
    """The text of a document in which some values are others."""
    raw: list[str] = []
    for _ in range(times):
        document = _changed(random, document, raw)
    text = json.dumps(document)
    for each in raw:
        text = text.replace(f'"{_RAW}"', each, 1)
    return text


def _changed(random: Random, document: Json, raw: list[str]) -> Json:
    places = list(_places(document))
    if not places or random.random() < 0.02:
        return _value(random, raw, document)
    holder, key = random.choice(places)
    which = random.randrange(10)
    if isinstance(holder, dict):
        assert isinstance(key, str)
        if which == 0:
            del holder[key]
        elif which == 1:
            holder[random.choice((key + "_", texts.text(random)))] = holder[key]
        else:
            holder[key] = _value(random, raw, holder[key])
    else:
        assert isinstance(key, int)
        if which == 0:
            del holder[key]
        elif which == 1:
            holder[key:key] = [holder[key]] * random.choice((1, 2, 1000 if _is_plain(holder[key]) else 5))
        else:
            holder[key] = _value(random, raw, holder[key])
    return document


def _places(document: Json) -> "list[tuple[dict[str, Json], str] | tuple[list[Json], int]]":
    found: list[tuple[dict[str, Json], str] | tuple[list[Json], int]] = []
    waiting: list[Json] = [document]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, dict):
            found += [(holder, key) for key in holder]
            waiting += holder.values()
        elif isinstance(holder, list):
            found += [(holder, at) for at in range(len(holder))]
            waiting += holder
    return found


def _value(random: Random, raw: list[str], was: Json) -> Json:
    """What stands in place of a value."""
    which = random.randrange(9)
    if which == 0:
        empty: tuple[Json, ...] = (None, True, False, [], {}, "", [[]], {"": None}, [None], "null", "true")
        return random.choice(empty)
    if which == 1:
        numbers: tuple[float, ...] = (0, -1, 1e308, -1e308, 5e-324, 1e-300, 1e-7, 2**63, -(2**63), 10**18, 0.5, 1e16)
        return random.choice(numbers)
    if which == 2 and isinstance(was, int | float) and not isinstance(was, bool) and abs(was) < _LARGE:
        return was * random.choice((-1, 0, 1e-12, 1e-3, 1e3, 1e12, 1e100, 1e300 if abs(was) < 1e7 else 1))
    if which == 3:
        raw.append(random.choice(("NaN", "Infinity", "-Infinity", "1e400", "9" * 400, "9" * 5000, "-" + "9" * 400)))
        return _RAW
    if which == 4:
        opening, closing = random.choice((("[", "]"), ('{"a":', "}")))
        depth = random.choice(_DEEP)
        raw.append(opening * depth + "1" + (closing * depth if random.random() < 0.7 else ""))
        return _RAW
    if which == 5:
        raw.append(
            random.choice((r'"\ud800"', r'"\udfff\ud800"', r'"\u0000"', r'"\u001b]52;c;aGk=\u0007"', r'"\u202e"'))
        )
        return _RAW
    if which == 6:
        return [was] * random.choice((0, 2, 100_000 if _is_plain(was) else 5))
    if which == 7:
        return texts.text(random)
    return {"value": was} if random.random() < 0.5 else str(was)


def _is_plain(value: Json) -> bool:
    """Whether it may be repeated many times, and those once more."""
    return value is None or isinstance(value, int | float | bool)


def json_line(random: Random, line: bytes) -> bytes:
    """A line that holds a document, with something wrong."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return in_bytes(random, line)
    if random.random() < 0.1:
        return in_bytes(random, line)
    return in_json(random, document, random.choice((1, 1, 2, 4))).encode("utf-8", "surrogatepass")
