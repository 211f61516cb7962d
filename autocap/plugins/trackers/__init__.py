"""A run in the experiment tracker of its user: Weights & Biases, MLflow or TensorBoard.

A tracker may hang, print, ask for a password, or take seconds to be imported. So whoever talks to one follows the run
directory, as `autocap report --follow` does, and nobody waits for it: it is a process of its own (`process`), or, where
the training script itself has a run of that tracker open, a thread beside it (`joined`). What is logged is the same
for all (`rows`); a module a tracker says it in that tracker's words (`sink`).
"""

import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from autocap import registry
from autocap.errors import TrackerUnavailable

if TYPE_CHECKING:  # a training script that asks for none of it does not wait for it
    from autocap.plugins.trackers.joined import Joined
    from autocap.plugins.trackers.process import Tracker

PATIENCE_S = 10.0  # with all the processes that log a run, at its end


def require(trackers: Iterable[str]) -> None:
    """Raises TrackerUnavailable where the package of one of ours is not installed. A tracker, its package and our extra
    have one name. Imports none of them."""
    for name in trackers:
        if name in registry.ours("trackers") and not _is_installed(name):
            raise TrackerUnavailable(f"--log-to {name} needs the package {name}; install it with: pip install {name}")


def _is_installed(package: str) -> bool:
    """W&B keeps its files in folders called wandb, which Python would take for packages without modules."""
    if sys.modules.get(package) is not None:
        return True
    found = find_spec(package)
    return found is not None and found.origin is not None


def start(name: str, run_dir: Path) -> "Tracker":
    """A process that logs a run to a tracker. Raises TrackerUnavailable where none can be started."""
    from autocap.plugins.trackers.process import Tracker

    return Tracker(name, run_dir)


def join(names: Iterable[str], run_dir: Path) -> "list[Joined]":
    """Those that have a run open in this very process, to be logged to in it."""
    from autocap.plugins.trackers.joined import joined

    return joined(names, run_dir)


def await_end(started: "Sequence[Tracker]") -> Iterable[str]:
    """Wait until all have logged the end of the run, but no longer than PATIENCE_S; sentences on what went wrong."""
    from autocap.plugins.trackers import process

    return process.await_end(started)
