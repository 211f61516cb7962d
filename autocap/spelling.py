"""What was probably meant by a name that is not known: the one place where "did you mean" comes from."""

from collections.abc import Iterable

_LONGEST = 60  # characters of a name that is compared: it takes time with their square
_ALIKE = 0.6  # share of characters that a name has in common with the one that is meant


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean energy?)`, to stand behind a name in a message; nothing where none of the known is like it.

    A name in capitals, with underscores for dashes or cut short is like the one it stands for.
    """
    from difflib import get_close_matches  # only where something is wrong already

    if len(name) > _LONGEST:
        return ""
    plain = {_plain(one): one for one in sorted(known, reverse=True)}  # the first by alphabet for two that are alike
    wanted = _plain(name)
    close = get_close_matches(wanted, plain, n=1, cutoff=_ALIKE)
    longer = [one for one in plain if wanted and one.startswith(wanted)]
    meant = longer if len(longer) == 1 else close
    return f" (did you mean {plain[meant[0]]}?)" if meant and plain[meant[0]] != name else ""


def _plain(name: str) -> str:
    return name.casefold().replace("_", "-").removeprefix("--")
