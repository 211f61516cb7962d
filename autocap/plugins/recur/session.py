"""One recurrence of a job: chosen, kept as running, run as `autocap run` runs a job, and kept with what it came to."""

import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autocap.errors import RecurrenceUnavailable, UsageError
from autocap.events import MetricInfo
from autocap.job.signals import SignalClock
from autocap.plugins.recur.config import RecurConfig, filled, require_places
from autocap.plugins.recur.history import Outcome, Rules, out_of_memory
from autocap.plugins.recur.policy import Choice, choose
from autocap.plugins.recur.record import JobSettings, KeptRecurrence, past, require_metric
from autocap.plugins.recur.source import TargetPlace
from autocap.plugins.recur.store import RecurStore, now
from autocap.plugins.recur.target import Target, target
from autocap.plugins.recur.watch import Aim, RecurrenceWatch
from autocap.session import modes


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
