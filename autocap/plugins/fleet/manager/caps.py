"""The caps of all GPUs of a budget. One that fails is outside from then on: the limit found there is put back, and
counted in full; the others go on."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from autocap.devices.base import require_inside
from autocap.errors import DeviceError, GuardError, LimitRefused
from autocap.limits.guard import LimitGuard
from autocap.limits.times import BEAT_APART_S
from autocap.limits.together import done_aside
from autocap.records import GpuInfo


class Caps:
    """gpus: in the order of all caps. guard: entered. found_w: the limits found. in_force_w: the caps now. counted_w:
    what each that has failed may draw, by its place; sentences: on these. Watts.

    Raises GuardError where the limit of a GPU is not known, so that none could be put back.
    """

    def __init__(self, gpus: Sequence[GpuInfo], guard: LimitGuard) -> None:
        unknown = [gpu for gpu, w in zip(gpus, guard.original_w, strict=True) if w is None]
        if unknown:
            raise GuardError(
                f"the limit of {unknown[0].where} cannot be read, so it could not be put back; pass --gpus"
            )
        self._gpus, self._guard = gpus, guard
        self.found_w = tuple(w for w in guard.original_w if w is not None)
        self.in_force_w = list(self.found_w)
        self.counted_w: dict[int, float] = {}
        self.sentences: tuple[str, ...] = ()
        self._news: list[tuple[int, str]] = []
        self._put_back = False  # limits were, while caps were being set

    def has(self, gpu: int) -> bool:
        """Whether it has not failed."""
        return gpu not in self.counted_w

    def require(self, gpus: Sequence[int], caps_w: Sequence[float]) -> None:
        """Raises LimitRefused for caps that some GPUs, by their places, do not take."""
        if len(caps_w) != len(gpus):
            raise LimitRefused(f"these are {len(caps_w)} caps for {len(gpus)} devices; give each one")
        for gpu, cap_w in zip(gpus, caps_w, strict=True):
            one = self._gpus[gpu]
            require_inside(cap_w, one.cap_range.min_w, one.cap_range.max_w, one.where)

    def set(self, caps_w: Mapping[int, float]) -> set[int]:
        """Have some caps set, by their places; which of them are others than before. Raises as `LimitGuard.set_caps`,
        but DeviceError only where no GPU is left."""
        changed = {gpu: w for gpu, w in caps_w.items() if w != self.in_force_w[gpu] and self.has(gpu)}
        if changed:
            wanted_w = [changed.get(gpu, w) for gpu, w in enumerate(self.in_force_w)]
            self._request(wanted_w)
            self.in_force_w = [self.counted_w.get(gpu, w) for gpu, w in enumerate(wanted_w)]
        return set(changed)

    def beat(self) -> bool:
        """Say that we are alive; whether all were set again, as they were put back because we seemed not to be. Raises
        as `LimitGuard.beat` and `set`."""
        put_back, self._put_back = self._guard.beat() or self._put_back, False
        if not put_back:
            return False
        self._request(self.in_force_w)
        return True

    def fails(self, gpu: int, error: DeviceError) -> None:
        """A GPU has failed. Raises the error where it was the last one, and GuardError."""
        if not self.has(gpu):
            return
        if len(self.counted_w) + 1 == len(self._gpus):
            raise error
        one, found_w = self._gpus[gpu], self.found_w[gpu]
        if self._guard.leave_out(gpu).restored:
            counted_w, fate = found_w, f"its limit of {found_w:g} W is back"
        else:  # whatever it takes for its own when it comes back
            counted_w, fate = max(found_w, one.cap_range.default_w), "its limit could not be put back"
        sentence = f"{one.where} is outside the budget now: {error}; {fate}, and {counted_w:g} W are counted for it"
        self.counted_w[gpu] = self.in_force_w[gpu] = counted_w
        self.sentences = (*self.sentences, sentence)
        self._news.append((gpu, sentence))

    def news(self) -> list[tuple[int, str]]:
        """Those that have failed since the last time, each with a sentence."""
        found, self._news = self._news, []
        return found

    def _request(self, caps_w: Sequence[float]) -> None:
        while True:
            try:
                done_aside(lambda: self._guard.set_caps(caps_w), self._stay, BEAT_APART_S)
            except DeviceError as error:
                if self._guard.failed is None:
                    raise
                self.fails(self._guard.failed, error)
            else:
                return

    def _stay(self) -> None:
        """A driver takes its time: the limits of the others hold."""
        with suppress(GuardError):  # which the set meets as well
            self._put_back = self._guard.beat() or self._put_back
