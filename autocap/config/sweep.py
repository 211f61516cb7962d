"""The settings of a sweep, as `autocap.config` has those of a run."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from autocap.config import ORDERS, SLOWDOWN, RunConfig, values
from autocap.config.option import CommandOption, Group

REPEATS = 3  # of each cap
COOL_DOWN_SECONDS = 10.0  # between the runs on real devices

_SWEEP = ("sweep",)
_runs = partial(CommandOption, Group.RUNS, commands=_SWEEP)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepConfig:
    """A whole `autocap sweep`. run: what it has in common with a run; its search, progress and strategy mean nothing.

    gpu_sets: each as --gpus of a run, `None` for the one set that needs no naming. cool_down_s: `None` for what the
    device needs.
    """

    name: Annotated[
        str,
        CommandOption(
            Group.RUNNING,
            "--name NAME",
            values.word,
            "of the curves in sweep.csv (default: the command's)",
            commands=_SWEEP,
        ),
    ]
    run: RunConfig
    gpu_sets: Annotated[
        tuple[tuple[str, ...], ...] | None,
        CommandOption(
            Group.DEVICE,
            "--gpus SETS",
            values.gpu_sets,
            "sets of indices, ranges or UUIDs by comma, the sets by semicolon: '0;0,1;0-3' repeats the sweep for "
            "each and shows it to the command in CUDA_VISIBLE_DEVICES (default: those which that names already, or the "
            "only GPU there is)",
            commands=_SWEEP,
            between=";",
        ),
    ] = None
    repeats: Annotated[int, _runs("--repeats N", values.repeats, f"runs of each cap (default: {REPEATS})")] = REPEATS
    order: Annotated[
        str,
        _runs(
            "--order",
            str,
            "random: every repeat a shuffled round of all caps; descending: all repeats of a cap, then the next lower "
            "(default: random, with --stop-slowdown descending)",
            choices=ORDERS,
        ),
    ]
    seed: Annotated[int, _runs("--seed N", values.seed, "of the random order (default: 0)")] = 0
    stop_slowdown: Annotated[
        float | None,
        _runs(
            "--stop-slowdown X%",
            SLOWDOWN,
            "end the descent at the first cap whose mean time is more than X% beyond the baseline's",
        ),
    ] = None
    cool_down_s: Annotated[
        float | None,
        _runs(
            "--cool-down S",
            values.not_negative("seconds"),
            f"pause between runs (default: {COOL_DOWN_SECONDS:g}; on an emulated device 0)",
        ),
    ] = None
    discard: Annotated[
        bool,
        _runs("--no-warm-up", None, "leave out the first run of each GPU set, which does not count"),
    ] = True

    def run_on(self, gpus: tuple[str, ...] | None) -> RunConfig:
        """A run of it on those GPUs."""
        return replace(self.run, gpus=gpus)
