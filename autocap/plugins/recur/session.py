"""One recurrence of a job: chosen, kept as running, run as `autocap run` runs a job, and kept with what it came to.

The values of its target come from the file that `autocap.report` writes to, and, for a pattern, from a relay process
that reads the job's output on its way.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Self

import numpy as np

from autocap.clock import Clock, RunClock
from autocap.errors import RecurrenceUnavailable, UsageError
from autocap.events import MetricInfo
from autocap.job.signals import SignalClock
from autocap.plugins.recur.config import RecurConfig, Target, filled, require_places, target
from autocap.plugins.recur.policy import Choice, Outcome, Rules, choose, out_of_memory
from autocap.plugins.recur.record import JobSettings, KeptRecurrence, past, require_metric
from autocap.plugins.recur.store import RecurStore, now
from autocap.plugins.recur.watch import Aim, RecurrenceWatch
from autocap.progress.counting import Counting
from autocap.progress.regex import Relay
from autocap.progress.values import ReportedValue, ValueFile
from autocap.session import modes
from autocap.session.backend import Backend

_STDOUT = 1


class TargetPlace(Backend):
    """This machine, with the target's values read; a context manager. pattern: what finds a value in the output, ""
    where the job reports it by itself."""

    def __init__(self, pattern: str, clock: RunClock) -> None:
        super().__init__()
        self._pattern, self._clock = pattern, clock
        self._stack = ExitStack()
        self._file: ValueFile | None = None
        self._relay: Relay | None = None

    def __enter__(self) -> Self:
        self._file = self._stack.enter_context(ValueFile.create())
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def fault(self) -> str | None:
        """As Values has it."""
        return None if self._relay is None else self._relay.fault

    def read(self) -> list[ReportedValue]:
        """As Values has it."""
        if self._relay is not None:
            self._relay.read(self._clock.origin_s)  # which reaps its process
        return [] if self._file is None else self._file.read(self._clock.origin_s)

    def counting(self, kind: str, *, ours: bool, step_map_fd: int | None) -> Counting:
        """As Place has it."""
        return TargetCounting(super().counting(kind, ours=ours, step_map_fd=step_map_fd), self)

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The child's environment."""
        return dict(base) if self._file is None else self._file.environment(base)

    @contextmanager
    def child_stdout(self, sink: int | None) -> Iterator[int | None]:
        """The child's standard output while it is started. sink: where it would go without us, `None` for our own."""
        if not self._pattern or self._file is None:
            yield sink
            return
        relay = Relay.start(self._pattern, sink=_STDOUT if sink is None else sink, values=self._file.path)
        self._relay = self._stack.enter_context(relay)
        with relay.child_stdout() as descriptor:
            yield descriptor

    def drain(self) -> None:
        """Wait a moment for the child's last output."""
        if self._relay is not None:
            self._relay.drain(self._clock)


class TargetCounting(Counting):
    """Counts iterations as another does, and has the target's values read beside it."""

    def __init__(self, beneath: Counting, source: TargetPlace) -> None:
        super().__init__(beneath)
        self._source = source

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """As Counting has it."""
        return self._source.environment(super().environment(base))

    @contextmanager
    def child_stdout(self) -> Iterator[int | None]:
        """As Counting has it."""
        with super().child_stdout() as beneath, self._source.child_stdout(beneath) as descriptor:
            yield descriptor

    def drain(self, clock: Clock) -> None:
        """As Counting has it."""
        self._source.drain()
        super().drain(clock)


def recur(config: RecurConfig, clock: SignalClock, store: RecurStore) -> int:
    """Run the next recurrence; the job's exit status.

    Raises AutocapError for what is wrong before the job runs: then nothing of it is kept.
    """
    wanted, settings = checked(config)
    chosen: list[Choice] = []
    gpus: list[tuple[str, ...]] = []
    short: list[int] = []

    def next_of(kept: Sequence[KeptRecurrence]) -> KeptRecurrence:
        number = kept[-1].number + 1 if kept else 0
        rng = np.random.default_rng([zlib.crc32(config.name.encode()), number])  # the same history, the same choice
        earlier = past(kept, config.run.tune.metric)
        chosen.append(choose(earlier, settings.rules, rng))
        short.append(len(out_of_memory(chosen[-1].batch_size, earlier)))
        gpus.append(next((one.gpus for one in kept if one.spent is not None and one.outcome is not Outcome.LOST), ()))
        size = chosen[-1].batch_size
        return KeptRecurrence(number=number, batch_size=size, outcome=Outcome.RUNNING, started_at=now())

    with clock.preparing():  # others may write just now, and a signal is to end the wait
        registered, kept = store.begin(config.name, lambda known: _agreed(config.name, known, settings), next_of)
    with TargetPlace(wanted.pattern, clock) as place:
        watch = RecurrenceWatch(
            Aim(
                name=config.name,
                target=wanted,
                metric=config.run.tune.metric,
                choice=chosen[-1],
                most_values=config.max_epochs,
                obey=not config.run.tune.observe,
                gpus=gpus[-1],
                short=short[-1],
            ),
            kept,
            place,
            lambda ended, patience_s: store.finish(registered, ended, patience_s),
            now,
        )
        words = filled(config.run.command, kept.batch_size, config.usual, config.lr_rule)
        try:
            return modes.run(replace(config.run, command=words), clock, place, watch)
        finally:
            if not watch.began:
                store.withdraw(registered)


def checked(config: RecurConfig) -> tuple[Target, JobSettings]:
    """The target, and the settings to keep. Raises UsageError for what cannot be meant."""
    require_metric(config.run.tune.metric)
    require_places(config.run.command, config.lr_rule)
    if config.run.nodes is not None:
        raise UsageError(f"autocap recur runs a job on this machine; leave out --nodes {config.run.nodes}")
    return target(config.target), JobSettings(
        target=config.target,
        rules=Rules(
            batch_sizes=tuple(sorted(config.batch_sizes)),
            default=config.usual,
            threshold=config.threshold,
            window=config.window,
        ),
        metric=MetricInfo.of(config.run.tune.metric),
        command=config.run.command,
    )


def _agreed(name: str, known: JobSettings | None, settings: JobSettings) -> JobSettings:
    """The settings to keep. Raises RecurrenceUnavailable where what is known would mean nothing with them."""
    if known is not None and known.target != settings.target:
        raise RecurrenceUnavailable(
            f"the recurring job {name} was to reach '{known.target}' and is now to reach '{settings.target}', so its "
            f"costs say nothing; give another --name, or forget it: autocap recur reset {name}"
        )
    return settings
