"""What the callbacks of all frameworks have in common: a tuned block that a training begins and ends."""

from autocap.integrations.tuned import OptionValue, Tuned
from autocap.reports.summary.record import Summary


class TunedTraining:
    """Tunes from `_begin` to `_end`, as often as a training is begun. result: what came of the last one that ended,
    `None` before."""

    def __init__(self, **options: OptionValue) -> None:
        """Raises UsageError for options that are wrong by themselves."""
        Tuned(options)  # now, rather than when the training begins
        self._options = options
        self._tuned: Tuned | None = None
        self.result: Summary | None = None

    def _begin(self, *, first_rank: bool) -> None:
        """A training begins; one that ended without a word ends now. first_rank: of this machine, by the framework."""
        self._end()
        self._tuned = Tuned(self._options, first_rank=first_rank)
        self._tuned.__enter__()

    def _end(self) -> None:
        """The training has ended, or failed; nothing happens where none goes on."""
        tuned, self._tuned = self._tuned, None
        if tuned is not None:
            tuned.__exit__()
            self.result = tuned.result
