"""How much of everything a client may have: so that none of them can keep the others from being served."""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many at once, and then so many a second."""

    burst: float
    per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """clients: connections in all; clients_of_uid: of one user; kept_places: for root and our own user alone. connects,
    looks, lends: of one user (looking asks the driver for all that there is; a lease begins with a new watchdog
    process). messages: of one connection. sets: of one device. idle_s: until a connection without a lease is closed.
    send_s: until one is closed that does not read its answers.
    """

    clients: int = 256
    clients_of_uid: int = 96
    kept_places: int = 16
    connects: Rate = Rate(burst=128, per_s=32)
    messages: Rate = Rate(burst=100, per_s=50)
    looks: Rate = Rate(burst=128, per_s=8)
    lends: Rate = Rate(burst=16, per_s=1)
    sets: Rate = Rate(burst=20, per_s=4)
    idle_s: float = 60.0
    send_s: float = 0.5


class Bucket:
    """Counts against a rate. now: the clock, seconds."""

    def __init__(self, rate: Rate, now: Callable[[], float]) -> None:
        self._rate, self._now = rate, now
        self._asked = rate  # the one that was asked for last
        self._left, self._at_s = rate.burst, now()

    def wait_s(self, per_s: float | None = None) -> float:
        """Seconds until one may be had, 0 when it may be now. per_s: less than usual, and at once as much less."""
        rate = self._rate
        if per_s is not None and per_s < rate.per_s:
            rate = Rate(burst=max(1.0, rate.burst * per_s / rate.per_s), per_s=per_s)
        self._asked, now_s = rate, self._now()
        self._left = min(rate.burst, self._left + rate.per_s * (now_s - self._at_s))
        self._at_s = now_s
        return max(0.0, (1.0 - self._left) / rate.per_s)

    def take(self, count: float = 1.0) -> None:
        """Have one, or as much as so many; `wait_s` was 0."""
        self._left -= count

    def is_full(self) -> bool:
        """Whether it is as good as a new one. It is only looked at: what flows in until it is asked again does so at
        the rate that is asked for then."""
        rate = self._asked
        return self._left + rate.per_s * (self._now() - self._at_s) >= rate.burst


class Buckets:
    """One for each user, or device; they outlive connections. From any thread."""

    def __init__(self, rate: Rate, now: Callable[[], float]) -> None:
        self._rate, self._now = rate, now
        self._lock = threading.Lock()
        self._of: dict[Hashable, Bucket] = {}

    def charge(self, whose: Hashable, count: float) -> None:
        """What was taken counts for so many more; what is short of them is waited for by the next one."""
        with self._lock:
            self._of.setdefault(whose, Bucket(self._rate, self._now)).take(count)

    def take(self, *whose: Hashable, per_s: float | None = None) -> float:
        """Have one of each of them, or of none: then the seconds until it may be had."""
        with self._lock:
            for gone in [one for one, bucket in self._of.items() if one not in whose and bucket.is_full()]:
                del self._of[gone]
            buckets = [self._of.setdefault(one, Bucket(self._rate, self._now)) for one in whose]
            wait_s = max((bucket.wait_s(per_s) for bucket in buckets), default=0.0)
            if wait_s == 0.0:
                for bucket in buckets:
                    bucket.take()
            return wait_s
