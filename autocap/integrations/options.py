"""The keywords of `autocap.tune` with their types, for editors and type checkers: those of `autocap attach`, with
underscores. Each takes what the command line does as text too; what they mean stands in `autocap attach --help all`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, TypedDict

Number = float | str  # a text is read as on the command line
Scalar = str | int | float


class TuneOptions(TypedDict, total=False):
    """`None` is as good as leaving it out. Watts, seconds; what is a list may be text with commas."""

    metric: Literal["energy", "edp", "ed2p", "eds", "cost", "carbon"] | None
    k: Number | None
    max_slowdown: Number | None
    energy_price: Number | None
    hour_price: Number | None
    carbon_price: Number | None
    currency: str | None
    carbon: Number | None
    finish_by: str | None
    strategy: str | None
    strategy_option: Mapping[str, Scalar] | Iterable[str] | None
    min_cap: Number | None
    max_cap: Number | None
    cap_step: Number | None
    caps: Iterable[float] | str | None
    knob: str | None
    knob_settings: str | Iterable[str] | None
    target_stderr: Number | None
    trial_seconds: Number | None
    wait: Number | None
    quick: bool | None
    iterations: int | str | None
    retune: Number | None
    warm_start: str | Path | None
    memory: bool | None
    device: str | None
    via: str | None
    shared_gpu: bool | None
    sample_hz: Number | None
    gpus: Iterable[int | str] | int | str | None
    nodes: str | None
    job: int | str | None
    progress: str | None
    observe: bool | None
    per_gpu: bool | None
    node_power: Number | None
    idle_power: Number | None
    standard_idle: Number | None
    out: str | Path | None
    force: bool | None
    quiet: bool | None
    verbose: bool | None
    prometheus: int | str | None
    log_to: str | Iterable[str] | None
