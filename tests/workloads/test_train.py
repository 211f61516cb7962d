"""The training loop in this process: what it reports, when it ends, and what it leaves behind."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from autocap.workloads import WorkloadError
from autocap.workloads.config import TrainConfig
from tests.doubles.workload_configs import tiny

if TYPE_CHECKING:
    from autocap.workloads.train import Line, TrainResult


@pytest.fixture(autouse=True)
def _torch(threads_put_back: None) -> None:
    """Not above: it costs every process that collects the tests more than a second."""
    global torch, save, Progress, Saved, Validated, train
    import torch

    from autocap.workloads.checkpoint import save
    from autocap.workloads.train import Progress, Saved, Validated, train


def run(config: TrainConfig | None = None, **changes: Any) -> "tuple[TrainResult, list[Line]]":
    lines: list[Line] = []
    result = train(replace(config or tiny(), **changes), lines.append)
    assert result is not None
    return result, lines


@cache
def plain(network: str = "resnet18") -> "TrainResult":
    return run(tiny(network))[0]


def test_progress_is_reported_at_intervals_and_at_the_end() -> None:
    result, lines = run(tiny("lstm"))
    progress = [line for line in lines if isinstance(line, Progress)]
    assert [(line.iteration, line.total) for line in progress] == [(3, 8), (6, 8), (8, 8)]
    assert progress[-1].loss == result.loss_last
    assert all(line.images_per_s > 0 for line in progress)


@pytest.mark.slow
def test_the_result_says_what_was_trained_and_how_it_went() -> None:
    result = plain()
    assert (result.network, result.device, result.processes, result.iterations) == ("resnet18", "cpu", 1, 8)
    assert result.images_per_s == pytest.approx(8 * 8 / result.seconds)
    assert result.loss_last < 0.6 * result.loss_first
    assert result.peak_memory_bytes > 50e6  # the weights alone


@pytest.mark.slow
def test_training_ends_at_its_time_limit() -> None:
    result, lines = run(tiny("lstm"), iterations=None, seconds=0.2)
    assert result.seconds >= 0.2
    assert isinstance(lines[-1], Progress)
    assert (lines[-1].iteration, lines[-1].total) == (result.iterations, None)


def test_training_ends_at_its_iterations_when_time_is_left() -> None:
    assert run(tiny("lstm"), iterations=1, seconds=3600)[0].iterations == 1


def test_an_epoch_is_as_many_whole_batches_as_the_samples_give() -> None:
    config = replace(tiny(), samples=30, iterations=None)
    assert config.total_iterations(processes=1) == 3
    assert config.total_iterations(processes=2) == 1
    assert replace(config, epochs=4).total_iterations(processes=1) == 12
    assert replace(config, seconds=1.0).total_iterations(processes=1) is None


@pytest.mark.slow
def test_the_host_phase_changes_no_loss() -> None:
    assert run(host_share=0.3)[0].loss_last == plain().loss_last


@pytest.mark.slow
def test_the_load_forecast_learns_through_a_loader() -> None:
    result, _ = run(tiny("lstm"), iterations=30, samples=64, data="loader", workers=1)
    assert result.loss_last < 0.5 * result.loss_first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "changes"),
    [("resnet18", {"precision": "bf16"}), ("resnet18", {"channels_last": True}), ("lstm", {"precision": "amp"})],
)
def test_precision_and_layout_change_little_of_the_loss(network: str, changes: dict[str, Any]) -> None:
    result, as_ever = run(tiny(network), **changes)[0], plain(network)
    assert result.loss_first == pytest.approx(as_ever.loss_first, rel=0.02)
    assert result.loss_last == pytest.approx(as_ever.loss_last, rel=0.5)
    assert (result.loss_last or 0) < 0.9 * (result.loss_first or 0)


@pytest.mark.slow
def test_a_validation_pass_changes_nothing_of_the_training() -> None:
    result, lines = run(validate_every=4, log_every=8)
    assert [type(line) for line in lines] == [Validated, Progress, Validated]
    assert [line.iteration for line in lines] == [4, 8, 8]
    # Batch normalisation has no say in it: its running values are used in validation, and not changed there.
    assert result.loss_last == plain().loss_last


@pytest.mark.slow
def test_a_checkpoint_holds_the_weights_the_optimiser_and_the_iteration(tmp_path: Path) -> None:
    path = tmp_path / "resnet.pt"
    _, lines = run(checkpoint=path, checkpoint_every=3)
    state = torch.load(path, weights_only=True)
    assert [line.iteration for line in lines if isinstance(line, Saved)] == [3, 6]
    assert (state["network"], state["iteration"]) == ("resnet18", 6)
    assert state["model"]["head.weight"].shape == (1000, 512)
    assert len(state["optimizer"]["state"]) > 50
    assert list(tmp_path.iterdir()) == [path]


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "kept.pt"
    save(path, {"iteration": 1})
    (tmp_path / "kept.pt.tmp").symlink_to("/dev/full")
    with pytest.raises(WorkloadError, match=r"kept\.pt cannot be written: No space left on device; pass another"):
        save(path, {"iteration": 2})
    assert torch.load(path, weights_only=True) == {"iteration": 1}


def test_a_checkpoint_s_place_is_tried_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"nowhere/a\.pt cannot be written: No such file or directory"):
        run(checkpoint=tmp_path / "nowhere" / "a.pt", checkpoint_every=1)
