"""What the callbacks of all frameworks have in common: a tuned block that a training begins and ends."""

from threading import RLock
from typing import TYPE_CHECKING, Unpack

from autocap.integrations.call_watch import CallWatch
from autocap.integrations.options import TuneOptions
from autocap.integrations.tuned import Tuned

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
