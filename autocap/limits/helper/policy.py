"""Who may have which devices, within which bounds: the rules, and which of them decides."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autocap.wire.who import Peer, user_name

ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """users, groups: by number; `None` for not named. With neither, the rule is for everybody who can connect. devices:
    UUIDs and PCI addresses as `plain_address` has them, or ANY. min_w, max_w: caps, watts. sets_per_s: of a device.
    shared: other users may compute there. given: the devices are theirs, whoever computes there, and nobody else's.
    source: the file that has it.
    """

    users: frozenset[int] | None = None
    groups: frozenset[int] | None = None
    devices: frozenset[str] = frozenset({ANY})
    min_w: float | None = None
    max_w: float | None = None
    sets_per_s: float | None = None
    shared: bool = False
    given: bool = False
    source: str = ""

    def covers(self, names: Iterable[str]) -> bool:
        """Whether it is about a device with these names."""
        return ANY in self.devices or not self.devices.isdisjoint(names)

    def is_for(self, peer: Peer) -> bool:
        if self.users is None and self.groups is None:
            return True
        return peer.uid in (self.users or ()) or not (self.groups or frozenset()).isdisjoint(peer.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a client may do with a device. alone: only while nobody else computes on it. above_found: also caps above
    the limit found. why: whence it is so."""

    min_w: float = 0.0
    max_w: float = float("inf")
    sets_per_s: float | None = None
    alone: bool = True
    above_found: bool = False
    why: str = "it is lent to whoever computes there alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """rules: in the order in which they are asked. closed: what no rule allows is not allowed, as where an
    administrator has written a policy."""

    rules: tuple[Rule, ...] = ()
    closed: bool = False

    def names(self) -> list[tuple[Rule, str]]:
        """What rules call devices, each with its rule; not ANY."""
        return [(rule, name) for rule in self.rules for name in sorted(rule.devices - {ANY})]

    def grant(self, peer: Peer, names: Sequence[str]) -> Grant | str:
        """What a client may do with the device of these names; a sentence where that is nothing."""
        about = [rule for rule in self.rules if rule.covers(names)]
        first = next((rule for rule in about if rule.is_for(peer)), None)
        theirs = next((rule for rule in about if rule.given and not rule.is_for(peer)), None)
        if theirs is not None and not (first is not None and first.given):
            return f"it was given to {_whom(theirs)} by {theirs.source}"
        if first is not None:
            return Grant(
                min_w=first.min_w or 0.0,
                max_w=float("inf") if first.max_w is None else first.max_w,
                sets_per_s=first.sets_per_s,
                alone=not (first.shared or first.given),
                why=f"a rule of {first.source} allows it",
            )
        if self.closed:
            return f"no rule of the policy allows it to {peer.name}; ask your administrator"
        return Grant()


def plain_address(text: str) -> str:
    """A PCI address as rules and devices are compared by: 0000:01:00.0; anything else as it is, UUIDs in lower case."""
    domain, colon, rest = text.lower().partition(":")
    if not colon:
        return text.lower()
    return f"{domain[-4:].rjust(4, '0')}:{rest}" if rest.count(":") == 1 else f"0000:{domain}:{rest}"


def _whom(rule: Rule) -> str:
    users = [user_name(uid) for uid in sorted(rule.users or ())]
    return ", ".join([*users, *(f"group {gid}" for gid in sorted(rule.groups or ()))]) or "others"
