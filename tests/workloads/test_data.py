"""Synthetic data on the device and through a loader's processes, and the host's share of a step."""

import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import pytest

from tests.doubles.workload_configs import tiny


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    """Not above: it costs every process that collects the tests more than a second."""
    global torch, training_batches, validation_source, SyntheticImages, SyntheticLoad, HostPhase, HostShare, Ranks
    global ALONE, CPU
    import torch

    from autocap.workloads.batches import training_batches, validation_source
    from autocap.workloads.data import SyntheticImages, SyntheticLoad
    from autocap.workloads.host import HostPhase, HostShare
    from autocap.workloads.ranks import Ranks
    from tests.doubles.workload_jobs import ALONE, CPU


def images(seed: int) -> "SyntheticImages":
    return SyntheticImages(samples=10, batch_size=4, image_size=32, classes=1000, seed=seed, device=CPU)


def test_an_epoch_leaves_out_an_incomplete_batch_and_then_repeats() -> None:
    epoch = images(seed=0)
    first, labels = epoch.batch(0)
    other, _ = epoch.batch(1)
    again, labels_again = epoch.batch(2)
    assert first.shape == (4, 3, 32, 32)
    assert not torch.equal(first, other)
    assert torch.equal(first, again)
    assert torch.equal(labels, labels_again)


def test_the_seed_decides_the_images() -> None:
    assert torch.equal(images(seed=1).batch(0)[0], images(seed=1).batch(0)[0])
    assert not torch.equal(images(seed=1).batch(0)[0], images(seed=2).batch(0)[0])


@pytest.fixture
def load() -> "SyntheticLoad":
    return SyntheticLoad(samples=2000, batch_size=500, hours=168, seed=3, device=CPU)


def test_the_target_of_a_window_of_load_is_the_week_that_follows_it(load: "SyntheticLoad") -> None:
    weeks = {tuple(window.tolist()) for index in range(4) for window in load.batch(index)[0]}
    _, targets = load.batch(0)
    known = sum(tuple(target.tolist()) in weeks for target in targets)
    assert len(weeks) == 2000  # every window once
    assert known > 0.8 * len(targets)  # all but those at the end of the series are windows themselves


def test_load_repeats_by_day_within_its_noise(load: "SyntheticLoad") -> None:
    windows, targets = load.batch(0)
    a_day_later = (windows[:, 24:] - windows[:, :-24]).std().item()
    half_a_day_later = (windows[:, 12:] - windows[:, :-12]).std().item()
    assert 0 <= windows.min() <= targets.max() <= 1
    assert a_day_later < 0.5 * half_a_day_later


def test_validation_sees_nothing_of_the_training_samples() -> None:
    config = replace(tiny(), samples=16)
    trained = [inputs for inputs, _ in islice(training_batches(config, ALONE, CPU), 2)]
    unseen, labels = validation_source(config, CPU).batch(0)
    assert labels.shape == (8,)
    assert not any(torch.equal(unseen, inputs) for inputs in trained)


@pytest.mark.parametrize("data", ["device", "loader"])
def test_two_ranks_share_an_epoch_without_a_sample_in_common(data: str) -> None:
    config = replace(tiny(), samples=32, data=data, workers=0)
    ranks = (Ranks(rank=rank, local=rank, size=2) for rank in range(2))
    first, second = (epoch_of(training_batches(config, rank, CPU)) for rank in ranks)
    assert (len(first), len(second)) == (16, 16)
    assert not first.keys() & second.keys()


def epoch_of(batches: "Iterator[tuple[torch.Tensor, torch.Tensor]]") -> dict[tuple[float, ...], int]:
    return {
        tuple(image.flatten()[:4].tolist()): int(label)
        for inputs, labels in islice(batches, 2)
        for image, label in zip(inputs, labels, strict=True)
    }


@pytest.mark.slow
def test_a_loader_s_processes_give_the_same_samples_every_epoch_in_another_order() -> None:
    batches = training_batches(replace(tiny(), samples=16, data="loader", workers=2), ALONE, CPU)
    first, second = epoch_of(batches), epoch_of(batches)
    assert len(first) == 16
    assert first == second
    assert list(first) != list(second)


def test_a_loader_gives_windows_of_load_too() -> None:
    config = replace(tiny("lstm"), data="loader", workers=0)
    inputs, targets = next(training_batches(config, ALONE, CPU))
    assert inputs.shape == targets.shape == (8, 32)


@pytest.mark.slow
def test_the_host_phase_is_as_much_work_as_it_was_calibrated_for_in_one_thread() -> None:
    phase = HostPhase(seed=0)
    phase.calibrate(0.1)
    thread_s, process_s = time.thread_time(), time.process_time()
    phase.run()
    thread_s, process_s = time.thread_time() - thread_s, time.process_time() - process_s
    assert 0.005 < thread_s < 0.16  # a crowded machine fits less into 0.1 s, none fits more
    assert process_s < 1.2 * thread_s


@pytest.mark.slow
def test_the_host_takes_its_share_of_a_step_once_it_has_seen_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0  # in virtual time: what others do on this machine is not the host's

    def work(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    decoded = 0

    def decompress(packed: bytes) -> bytes:
        nonlocal decoded
        decoded += 1
        work(0.001)
        return zlib.decompress(packed)

    monkeypatch.setattr("autocap.workloads.host.time", SimpleNamespace(perf_counter=lambda: now_s))
    monkeypatch.setattr("autocap.workloads.host.zlib", SimpleNamespace(compress=zlib.compress, decompress=decompress))
    host = HostShare(0.3, seed=0, device=CPU)
    phases_s, decoded_in_phases = [], []
    for step in range(15):
        start_s, so_far = now_s, decoded
        host.before_step()
        phases_s.append(now_s - start_s)
        decoded_in_phases.append(decoded - so_far)
        work(0.3 if step == 0 else 0.07)  # the first one allocates
        host.after_step()
    assert phases_s[:5] == [0.0] * 5
    assert set(decoded_in_phases[5:]) in ({30}, {31})  # always the same work; rounding may add a chunk
    assert sum(phases_s[5:]) / (sum(phases_s[5:]) + 0.07 * 10) == pytest.approx(0.3, abs=0.01)
