"""What happens to a fleet: which jobs come and go when, when they pause, what is known of each, and the budget."""

from dataclasses import dataclass

import numpy as np

from bench.budget.curves import Kinds
from bench.budget.fleet import Bools, Floats, Indices

SEARCH_S = 60.0  # after which a job that came has a curve
_STAY_S, _GAP_S = 900.0, 60.0  # mean time that a job stays, and that its devices are free after it
_TRAIN_S, _PAUSE_S = (120.0, 400.0), (3.0, 25.0)  # between two pauses, and their length; of the jobs that pause
_PAUSING = 0.5  # of the jobs
_WRONG, _UNTUNED = 0.1, 0.1  # of the jobs: remembered as another one, never tuned
_DEVICES = (1, 1, 2, 4, 8)  # of a place, all of which its job takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """curves: that there are. Arrays have shape (jobs,). come_s, go_s: seconds. known_s: from when on a curve is known,
    infinite for a job that nobody tunes. believed: the number of the curve that it is remembered by; another than its
    own where that is wrong. pauses: begin and end of each, by job. budget_w, drop_s: watts, a quarter less from then.
    end_s: of it all."""

    curves: Kinds
    kinds: Indices
    believed: Indices
    devices: Floats
    come_s: Floats
    go_s: Floats
    known_s: Floats
    pauses: tuple[tuple[tuple[float, float], ...], ...]
    budget_w: float
    drop_s: float
    end_s: float

    def there(self, t_s: float) -> Bools:
        return np.asarray((self.come_s <= t_s) & (t_s < self.go_s))

    def paused(self, t_s: float) -> Bools:
        return np.array([any(begin <= t_s < end for begin, end in some) for some in self.pauses], dtype=bool)

    def budget_at(self, t_s: float) -> float:
        """Watts."""
        return self.budget_w if t_s < self.drop_s else 0.75 * self.budget_w


def story(curves: Kinds, places: int, share: float, seed: int, *, drop_s: float, end_s: float) -> Story:
    """As many jobs at a time as there are places, at most; they come and go. share: the budget over what the first of
    them draw at their default caps."""
    rng = np.random.default_rng([seed, places])
    come_s, go_s, devices_of = list[float](), list[float](), list[int]()
    for place in range(places):
        t_s = 0.0
        while t_s < end_s:
            devices_of.append(_DEVICES[place % len(_DEVICES)])
            come_s.append(t_s)
            t_s += float(rng.exponential(_STAY_S))
            go_s.append(t_s)
            t_s += float(rng.exponential(_GAP_S))
    jobs, count = len(come_s), len(curves)
    kinds = rng.integers(count, size=jobs)
    wrong, untuned = np.split(rng.permutation(jobs)[: round((_WRONG + _UNTUNED) * jobs)], [round(_WRONG * jobs)])
    believed = kinds.copy()
    believed[wrong] = (kinds[wrong] + rng.integers(1, count, size=len(wrong))) % count
    came = np.array(come_s)
    known_s = np.where(came > 0, came + SEARCH_S, 0.0)
    known_s[wrong] = came[wrong]  # remembered, as it seems
    known_s[untuned] = np.inf
    devices = np.array(devices_of, dtype=float)
    first = came == 0
    return Story(
        curves=curves,
        kinds=kinds,
        believed=believed,
        devices=devices,
        come_s=came,
        go_s=np.array(go_s),
        known_s=known_s,
        pauses=tuple(_pauses(rng, come, go) for come, go in zip(come_s, go_s, strict=True)),
        budget_w=share * float(devices[first] @ curves.draws_w(kinds[first])),
        drop_s=drop_s,
        end_s=end_s,
    )


def _pauses(rng: np.random.Generator, come_s: float, go_s: float) -> tuple[tuple[float, float], ...]:
    if rng.random() > _PAUSING:
        return ()
    out, t_s = list[tuple[float, float]](), come_s + float(rng.uniform(0, _TRAIN_S[1]))
    while t_s < go_s:
        end_s = t_s + float(rng.uniform(*_PAUSE_S))
        out.append((t_s, end_s))
        t_s = end_s + float(rng.uniform(*_TRAIN_S))
    return tuple(out)
