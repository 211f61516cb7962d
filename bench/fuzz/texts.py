"""Hostile numbers and texts, as somebody could type them or a device or another program could give them."""

from random import Random

NUMBERS = (
    *("0", "-0", "1", "-1", "0.0", "1e-7", "5e-324", "1e-300", "1e308", "1.8e308", "1e309", "-1e308", "1e999999999"),
    *(
        "inf",
        "-inf",
        "nan",
        "NaN",
        "infinity",
        "+inf",
        "1_000",
        "1_0.0_1",
        "٣",
        "１２",
        "²",
        "½",
        "Ⅷ",
        "৪.৫",
        " 5 ",
        "+5",
    ),
    *("5.", ".5", "0x10", "0b1", "1e", "e5", "1e+", "5%", "%", "5%%", "%5", "1,5", "1;5", "1-5", "5-1", "1\u00a05"),
    *("4294967296", "2147483647", "2147483648", "4194304", "4194305", "9223372036854775808", "18446744073709551616"),
    *("99999999", "0-99999999", "0-999999999999", "65535", "65536", "1000000", "1e5", "1e9", "1e12", "1e-5", "True"),
    *("9" * 400, "-" + "9" * 5000, "0." + "0" * 400 + "1", "1" + "0" * 4301, "0" * 5000 + "5", "--", "-", "", " "),
    *("None", "null", "1\n2", "1\t", "\n", "5\x1b[2J", "5\u202e", "1\0", "\udcff", "١٢٣", "1j", "1e5j", "(1)", "[1]"),
)
ESCAPES = (
    *("\x1b]52;c;aGVsbG8=\x07", "\x1b[2J", "\x1b[31m", "\x9b31m", "\x9d0;x\x9c", "\r", "\x07", "\x08", "\x7f", "\0"),
    *("\u202egpj.exe", "\u2066", "\u200f", "\u061c", "\u2028", "\u0085", "\n", "\t", "\ud800", "\udcff", "\x1b"),
)
TEXTS = (
    *ESCAPES,
    *(
        "",
        " ",
        "-",
        "--",
        "---",
        "=",
        ":",
        ";",
        ",",
        ".",
        "..",
        "~",
        "*",
        "%",
        "%s%n%x",
        "%(prog)s",
        "{}",
        "{0}",
        "$HOME",
    ),
    *("a" * 300, "a" * 5000, "é" * 3000, "a/" * 2500, "/" * 5000, "/dev/null", "/dev/null/x", "/dev/full/x", "/proc/x"),
    *(
        "\ufeff",
        "\U0001f525",
        "a\u0300" * 100,
        "a b",
        "'",
        '"',
        "\\",
        "a\nb",
        "a\0b",
        "true",
        "none",
        "auto",
        "<script>",
    ),
)


def number(random: Random) -> str:
    """A number, more or less."""
    which = random.randrange(4)
    if which == 0:
        power = random.uniform(-320, 308) if random.random() < 0.3 else random.uniform(-9, 12)
        return repr(random.choice((1.0, 1.0, -1.0)) * 10.0**power)
    if which == 1:
        return str(random.choice((1, -1)) * random.getrandbits(random.choice((3, 8, 16, 31, 32, 33, 63, 64, 65, 2000))))
    if which == 2:
        return mutated(random, random.choice(NUMBERS))
    return random.choice(NUMBERS)


def text(random: Random) -> str:
    """A text that somebody may find hard to take."""
    which = random.randrange(5)
    if which == 0:
        return number(random)
    if which == 1:
        return mutated(random, random.choice(TEXTS))
    if which == 2:
        alphabet = "abcXYZ019-_=,:;./%@+ \t\né²\x1b\u202e\udc80\U0001f525"
        return "".join(random.choices(alphabet, k=random.choice((1, 3, 10, 100))))
    if which == 3:
        return random.choice(TEXTS) + random.choice(TEXTS)
    return random.choice(TEXTS)


def mutated(random: Random, given: str) -> str:
    """The text with a few characters changed, added or left out."""
    found = list(given[:6000])
    for _ in range(random.randint(1, 3)):
        at = random.randint(0, len(found))
        which = random.randrange(4)
        if which == 0 and at < len(found):
            del found[at]
        elif which == 1:
            found.insert(at, random.choice("0123456789-+.,:;e%= "))
        elif which == 2:
            found.insert(at, random.choice(ESCAPES))
        elif at < len(found):
            found[at:at] = found[at : at + 5] * random.choice((1, 2, 50))
    return "".join(found)
