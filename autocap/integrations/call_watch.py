"""Notices that a call was left, for frameworks that tell nobody when a training fails."""

import sys
from collections.abc import Callable
from threading import Event, Thread, get_ident
from types import FrameType

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
