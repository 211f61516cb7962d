"""Which command lines are the same job, and which are not."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autocap.runlog.memory import job as job_module
from autocap.runlog.memory.job import Job
from autocap.runlog.memory.store import key_of
from tests.docs.pages import ROOT, text
from tests.doubles.jobs import SLEEPING, job
from tests.doubles.memories import SETUP
from tests.doubles.waiting import eventually


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project, and its neighbour of the same make."""
    for name in ("project", "neighbour"):
        (tmp_path / name / "conf").mkdir(parents=True)
        for file in ("train.py", "eval.py", "conf/base.yaml", "model.py", "run.sh"):
            (tmp_path / name / file).touch()
    return tmp_path / "project"


def key(words: Sequence[str] | str, folder: Path, environ: Mapping[str, str] = os.environ) -> str:
    command = words.split() if isinstance(words, str) else words
    return key_of(Job.of(command, environ, folder), SETUP)


@pytest.mark.parametrize(
    "other",
    [
        "python3 train.py --batch 64 --lr 0.1",
        "/opt/env/bin/python3.12 -u ./train.py --batch 64 --lr 0.1",
        "python conf/../train.py --batch 64 --lr 0.1",
        "python train.py --seed 3 --batch 64 --lr 0.1",
        "python train.py --seed=-3 --batch 64 --lr 0.1",
        "python train.py --seed -3 --batch 64 --lr 0.1",
        "python train.py data.seed=7 --batch 64 --lr 0.1",
        "python train.py --batch 64 --lr 0.1 --output_dir out/7 --log-dir=/logs/7",
        "python train.py --trainer.default_root_dir there --batch 64 --lr 0.1",
        "python train.py --batch 64 --lr 0.1 --wandb_run_name second-try --master_port 29501",
        "python train.py --resume --batch 64 --lr 0.1",
        "python train.py --resume out/last.ckpt --batch 64 --lr 0.1",
        "python train.py --resume_from_checkpoint latest --batch 64 --lr 0.1",
    ],
)
def test_the_same_job_is_known_by_another_line(other: str, folder: Path) -> None:
    assert key("python train.py --batch 64 --lr 0.1", folder) == key(other, folder)


@pytest.mark.parametrize(
    "other",
    [
        "python eval.py --batch 64 --lr 0.1",
        "python ../neighbour/train.py --batch 64 --lr 0.1",
        "python train.py --batch 128 --lr 0.1",
        "python train.py --batch 64 --lr 0.1 --fp16",
        "python train.py --batch 64 --lr 0.1 --precision bf16",
        "python train.py --batch 64 --lr 0.1 --rank 16",
        "python train.py --batch 64 --lr 0.1 model.output=10",
        "python train.py --batch 64 --lr 0.1 --name other",
        "python train.py --batch 64 --resume 0.1",
        "python -m train --batch 64 --lr 0.1",
        "python -O train.py --batch 64 --lr 0.1",
        "torchrun train.py --batch 64 --lr 0.1",
        "python train.py",
    ],
)
def test_another_job_is_not(other: str, folder: Path) -> None:
    assert key("python train.py --batch 64 --lr 0.1", folder) != key(other, folder)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("run --id 8c1f0e9a-11ab-4c1d-9d5e-0123456789ab", "run --id 00000000-11ab-4c1d-9d5e-0123456789ab"),
        ("run --to x/20260101-120000/y", "run --to x/20261231_235959/y"),
        ("run --to x-2026-01-01T12:00:00", "run --to x-2026-02-03T04:05:06"),
        ("run --data /scratch/1234567/d", "run --data /scratch/7654321/d"),
        ("run --data /tmp/tmpab12cd34/d", "run --data /tmp/tmp.Xy12zz34Q/d"),
        ("/usr/bin/torchrun train.py", "torchrun train.py"),
        ("/usr/bin/python3 /usr/bin/torchrun train.py", "torchrun train.py"),
        ("./run.sh", "conf/../run.sh"),
        ("python train.py --config=conf/base.yaml", "python train.py --config=./conf/base.yaml"),
    ],
)
def test_what_differs_from_run_to_run_in_any_argument_does_not_count(one: str, other: str, folder: Path) -> None:
    assert key(one, folder) == key(other, folder)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("run --tokens 1700000000", "run --tokens 1800000000"),
        ("run --tokens 20260101120000", "run --tokens 20260101120001"),
        ("run --data /tmp/imagenet", "run --data /tmp/cifar"),
        ("run --data set-20250101", "run --data set-20260101"),
        ("run --hidden 2048", "run --hidden 4096"),
    ],
)
def test_a_number_or_a_name_counts(one: str, other: str, folder: Path) -> None:
    assert key(one, folder) != key(other, folder)


@pytest.mark.parametrize(
    "words", ["python train.py", "python -m model", "./run.sh", "sh ./run.sh", "python x.py --c ./conf"]
)
def test_paths_are_those_of_the_folder_that_it_is_started_in(words: str, folder: Path) -> None:
    assert key(words, folder) != key(words, folder.parent / "neighbour")
    assert key(words, folder) == key(words, folder / "conf" / "..")


def test_an_installed_program_or_module_is_the_same_wherever_it_is_started(folder: Path) -> None:
    for words in ("python -m installed.train", "trainer --model meta/model-7b", "/usr/local/bin/trainer x"):
        assert key(words, folder) == key(words, folder.parent)


def test_of_the_environment_counts_what_changes_the_work(folder: Path) -> None:
    same: list[dict[str, str]] = [
        {}, {"HOME": "/x", "SECRET_TOKEN": "abc", "TORCH_HOME": "/c", "TORCHELASTIC_RUN_ID": "7", "MASTER_PORT": "1"},
    ]  # fmt: skip
    assert len({key("a", folder, environ) for environ in same}) == 1
    other: list[dict[str, str]] = [
        {"WORLD_SIZE": "2"}, {"WORLD_SIZE": "4"}, {"OMP_NUM_THREADS": "2"}, {"NVIDIA_TF32_OVERRIDE": "0"},
        {"TORCH_ALLOW_TF32": "1"}, {"XLA_FLAGS": "--x"}, {"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "0"},
    ]  # fmt: skip
    assert len({key("a", folder, environ) for environ in [{}, *other]}) == 1 + len(other)
    by_number, by_uuid = ({"CUDA_VISIBLE_DEVICES": gpus} for gpus in ("0,1", "GPU-a,GPU-b"))
    assert key("a", folder, by_number) == key("a", folder, by_uuid)


def test_another_device_driver_or_meter_is_another_memory(folder: Path) -> None:
    of = Job.of(["a"], {}, folder)
    others = [
        replace(SETUP, gpus=("Tesla V100",)), replace(SETUP, gpus=SETUP.gpus * 2), replace(SETUP, driver="555"),
        replace(SETUP, node="ipmi"), replace(SETUP, kind="emulated"), replace(SETUP, emulated=True),
    ]  # fmt: skip
    assert len({key_of(of, setup) for setup in [SETUP, *others]}) == 1 + len(others)


def test_words_and_environment_are_not_told_apart_by_chance_and_any_text_has_a_key(folder: Path) -> None:
    assert key(["a", "b c"], folder) != key(["a", "b", "c"], folder)
    for words in (
        [],
        ["\udcff"],
        ["a", "x\0y"],
        ["a", "--=", "=", "-", "--", "--seed"],
        ["python"],
        ["-m"],
        ["a", "-m"],
    ):
        assert len(key(words, folder)) == 64


def test_what_a_running_job_was_started_with_gives_the_same_key(folder: Path) -> None:
    environ = {"WORLD_SIZE": "3", "PATH": os.environ["PATH"]}
    words = [sys.executable, "-S", "-c", "print(flush=True); input()"]
    with subprocess.Popen(words, cwd=folder, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()  # it is past its exec
        running = Job.running(child.pid)
        child.communicate(b"\n")
    assert running == Job.of(words, environ, folder)


def test_of_another_users_process_and_of_one_that_is_gone_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    us = os.geteuid()
    with job(SLEEPING) as process:
        eventually(lambda: Job.running(process.pid) is not None)  # amid its exec it has no command line
        monkeypatch.setattr(os, "geteuid", lambda: us + 1)
        assert Job.running(process.pid) is None
        monkeypatch.undo()
    assert Job.running(process.pid) is None


def test_every_rule_is_in_the_documentation() -> None:
    page = text(ROOT / "docs" / "memory.md")
    names = job_module._ASIDE | job_module._RESUMING | job_module._VARIABLES
    assert len(names) > 80
    assert not {name for name in names if f"`{name}`" not in page}
    assert all(f"`{family}…`" in page for family in job_module._FAMILIES)
