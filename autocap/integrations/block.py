"""What the callbacks of all frameworks have in common: a tuned block that a training begins and ends."""

import sys
from collections.abc import Callable
from threading import Event, RLock, Thread, get_ident
from types import FrameType
from typing import TYPE_CHECKING, Unpack

from autocap.integrations.options import TuneOptions
from autocap.integrations.tuned import Tuned

_LOOKS = 2  # the stack may change under a look, which then misses the call


class CallWatch:
    """Watches the outermost call of a module that is under way on this thread; where there is none, nothing.

    A thread looks for it again and again, and calls `left` when it was returned from, or an exception has ended it. The
    call is kept from being forgotten until then: it must hold nothing large.
    """

    def __init__(self, module: str, left: Callable[[], object], look_every_s: float = 1.0) -> None:
        self._closed = Event()
        call = _outermost(module)
        if call is not None:
            args = call, get_ident(), left, look_every_s
            Thread(target=self._watch, args=args, name="autocap call watch", daemon=True).start()

    def close(self) -> None:
        """Watch no more."""
        self._closed.set()

    def _watch(self, call: FrameType, thread: int, left: Callable[[], object], look_every_s: float) -> None:
        missed = 0
        while not self._closed.wait(look_every_s):
            missed = 0 if _is_under_way(call, thread) else missed + 1
            if missed == _LOOKS:
                left()
                return


def _outermost(module: str) -> FrameType | None:
    frame: FrameType | None = sys._getframe()
    found = None
    while frame is not None:
        if frame.f_globals.get("__name__") == module:
            found = frame
        frame = frame.f_back
    return found


def _is_under_way(call: FrameType, thread: int) -> bool:
    frame = sys._current_frames().get(thread)
    while frame is not None and frame is not call:
        frame = frame.f_back
    return frame is call


if TYPE_CHECKING:
    from autocap.integrations.result import Result

_ending = RLock()  # not a callback's own: frameworks copy and pickle those


class TunedTraining:
    """Tunes from `_begin` to `_end`, as often as a training is begun. result: what came of the last one that ended,
    `None` before."""

    def __init__(self, **options: Unpack[TuneOptions]) -> None:
        """Raises UsageError for options that are wrong by themselves."""
        Tuned(options)  # now, rather than when the training begins
        self._options = options
        self._tuned: Tuned | None = None
        self._watch: CallWatch | None = None
        self.result: Result | None = None

    def _begin(self, *, first_rank: bool, silent_in: str | None = None) -> None:
        """A training begins; one that ended without a word ends now. first_rank: of this machine, by the framework.

        silent_in: the module whose outermost call under way is the training, where that may end without a word.
        """
        self._end()
        self._tuned = tuned = Tuned(self._options, first_rank=first_rank)
        tuned.__enter__()
        if silent_in is not None and tuned.is_tuned:
            self._watch = CallWatch(silent_in, lambda: self._end(tuned))

    def _end(self, only: Tuned | None = None) -> None:
        """The training has ended, or failed; nothing happens where none goes on, or another than `only`."""
        with _ending:
            tuned = self._tuned
            if tuned is None or (only is not None and only is not tuned):
                return
            self._tuned = None
            if self._watch is not None:
                self._watch.close()
                self._watch = None
            tuned.__exit__()
            self.result = tuned.result
