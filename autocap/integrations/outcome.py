"""What came of a tuned block: always a Result, of the run that was recorded or of none."""

import sys
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from autocap.config import RunConfig
from autocap.errors import RunDirectoryError
from autocap.events import BLOCK_ENDED, Event, MetricInfo, OptionValue, RunEnded, RunStarted
from autocap.integrations.result import Result, load
from autocap.reports.summary.summarise import UNFINISHED, summarise
from autocap.version import __version__

_DIED = "the process that tunes has ended by itself; it says why on standard error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block that has ended. pid: of the process that was to be tuned. seconds: that it lasted."""

    config: RunConfig
    pid: int
    began: datetime
    seconds: float


def outcome(block: Block, directory: Path, why_not: str | None, *, died: bool) -> tuple[Result, str | None]:
    """What came of it; and why nothing was tuned, where nobody has said so yet.

    directory: of its run. why_not: why there is none. died: whether the process that tunes has ended before the block.
    """
    if why_not is not None:
        return _untuned(block, why_not), None
    summary = _recorded(directory, block.pid)
    if summary is None:
        why = _DIED if died else _too_short(block, "tuning began")
        return _untuned(block, why), why
    if summary.ended_because == BLOCK_ENDED and summary.device is None:
        why = _too_short(block, "the job used a GPU")
        return replace(summary, ended_because=why), why
    if summary.ended_because == BLOCK_ENDED and summary.baseline is None:
        return summary, _too_short(block, "the job was measured")
    if summary.ended_because == UNFINISHED and summary.device is None:
        return summary, _DIED
    return summary, None


def _recorded(directory: Path, pid: int) -> Result | None:
    """Of the run directory; `None` where that holds nothing of this process, but perhaps an older run."""
    try:
        summary = load(directory)
    except RunDirectoryError:
        return None
    return summary if summary.pid == pid else None


def _untuned(block: Block, why: str) -> Result:
    tune = block.config.tune
    started = RunStarted(
        t_s=0.0,
        autocap_version=__version__,
        mode="tune",
        command=tuple(sys.orig_argv),
        pid=block.pid,
        started_at=block.began.isoformat(timespec="seconds"),
        metric=MetricInfo.of(tune.metric),
        strategy=block.config.strategy,
        strategy_options=tuple(OptionValue(name=name, value=text) for name, text in block.config.strategy_options),
        observe=tune.observe,
        rates=block.config.rates,
    )
    events: list[Event] = [started, RunEnded(t_s=block.seconds, ended_because=why)]
    return Result.of(summarise(events), events)


def _too_short(block: Block, before: str) -> str:
    return f"the block ended after {block.seconds:.1f} s, before {before}; put more of the training into it"
