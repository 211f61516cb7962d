"""What makes a job the same one: its command without what does not change the work, and the environment that does.

docs/memory.md lists the rules. They leave out as little as they can: where two jobs are taken for one, the search
notices that the curve does not hold; where one is taken for two, it begins from nothing.
"""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from autocap.job.processes import environment

_PROC = Path("/proc")
_MOST_BYTES = 4 << 20  # of a command line; twice what the kernel takes
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_BARE_FLAGS = ("-u", "-B", "-s", "-E", "-P")  # of Python, which change nothing of the work
_OPTION = re.compile(r"(--?)?([A-Za-z][\w.-]*)(=(.*))?", re.DOTALL)

# Options whose value says where, when or under which name, but not what is computed; their names in lower case, with
# dashes. Behind a dot, as in trainer.default_root_dir, only those of several words and seeds: model.output is a size.
_ASIDE = frozenset({
    "seed", "random-seed", "manual-seed", "global-seed", "rng-seed", "data-seed", "out", "output", "out-dir",
    "outdir", "output-dir", "output-path", "output-folder", "save-dir", "save-path", "save-to", "save-folder",
    "log-dir", "logdir", "log-file", "logfile", "log-path", "log-folder", "logging-dir", "tensorboard-dir",
    "tb-dir", "tensorboard-log-dir", "checkpoint-dir", "checkpoints-dir", "ckpt-dir", "save-checkpoint-dir",
    "default-root-dir", "result-dir", "results-dir", "work-dir", "workdir", "run-dir", "exp-dir",
    "experiment-dir", "trace-dir", "profile-dir", "cache-dir", "run-name", "run-id", "exp-name",
    "experiment-name", "job-name", "job-id", "trial-id", "notes", "comment", "tags", "wandb-project",
    "wandb-entity", "wandb-name", "wandb-run-name", "wandb-id", "wandb-run-id", "wandb-group", "wandb-tags",
    "wandb-notes", "wandb-dir", "wandb-mode", "mlflow-run-name", "mlflow-experiment-name", "hydra.run.dir",
    "hydra.sweep.dir", "hydra.job.name", "port", "master-port", "main-process-port", "tensorboard-port",
    "master-addr", "dist-url", "init-method", "rdzv-endpoint", "rdzv-id", "local-rank", "node-rank",
    "machine-rank",
})  # fmt: skip
# Options that may stand alone; a word behind them is theirs only where it is one of these.
_RESUMING = frozenset({
    "resume", "resume-from", "resume-path", "resume-ckpt", "resume-checkpoint", "resume-from-checkpoint",
})  # fmt: skip
_CHECKPOINT = re.compile(
    r".*(/.*|\.(pt|pth|ckpt|bin|safetensors|tar|h5|msgpack))|auto|latest|last|best|true|false|none"
)
# What differs from run to run in any other argument; it counts as `*`.
_PASSING = re.compile(
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"  # a UUID
    r"|(?<!\d)20\d\d[-_.]?[01]\d[-_.]?[0-3]\d[-_.T ]?[0-2]\d[-_.:h]?[0-5]\d(?:[-_.:m]?[0-5]\d)?Z?(?!\d)"  # a moment
    r"|(?<=/)tmp[._-]?\w{6,}(?=/|$)"  # a directory of mktemp
    r"|(?<=/)\d{5,}(?=/|$)",  # a job's number as a directory
    re.ASCII,
)

# The environment that changes the work.
_VARIABLES = frozenset({
    "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "OMP_NUM_THREADS",
    "MKL_NUM_THREADS", "BATCH_SIZE", "MIXED_PRECISION", "ACCELERATE_MIXED_PRECISION", "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_WORKSPACE_CONFIG", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "NCCL_ALGO", "NCCL_PROTO",
    "XLA_FLAGS", "JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION", "TF_XLA_FLAGS",
    "TF_ENABLE_AUTO_MIXED_PRECISION",
})  # fmt: skip
_FAMILIES = ("TORCH_", "PYTORCH_", "CUDNN_", "CUBLAS_", "NVTE_")
_NOT_OF_WORK = ("_HOME", "_DIR", "_PATH", "_FILE", "_LOGS", "_TRACE", "_LOG_LEVEL", "_STACKTRACES", "_DEBUG")
_VISIBLE = "CUDA_VISIBLE_DEVICES"  # of which only the number counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """command: its words as they were typed. words, environment: what of them counts; paths are absolute."""

    command: tuple[str, ...]
    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, command: Sequence[str], environ: Mapping[str, str], folder: Path) -> Self:
        """folder: in which it is started."""
        return cls(
            command=tuple(command), words=tuple(_words(list(command), folder)), environment=_environment(environ)
        )

    @classmethod
    def running(cls, pid: int) -> Self | None:
        """Of a process of ours that runs; `None` for another user's, and where what it was started with is hidden."""
        place = _PROC / str(pid)
        try:
            if place.stat().st_uid != os.geteuid():
                return None
            command = [os.fsdecode(word) for word in _strings(place / "cmdline")]
            variables = {os.fsdecode(name): os.fsdecode(value) for name, value in environment(pid).items()}
            folder = Path(os.readlink(place / "cwd"))
        except OSError:
            return None
        return cls.of(command, variables, folder) if command else None


def _strings(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        text = file.read(_MOST_BYTES)
    return text.split(b"\0")[:-1] if text.endswith(b"\0") else [part for part in text.split(b"\0") if part]


def _environment(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = {
        name: value
        for name, value in environ.items()
        if name in _VARIABLES or (name.startswith(_FAMILIES) and not name.endswith(_NOT_OF_WORK))
    }
    if _VISIBLE in environ:
        found[_VISIBLE] = str(len([one for one in environ[_VISIBLE].split(",") if one.strip()]))
    return tuple(sorted(found.items()))


def _words(command: list[str], folder: Path) -> list[str]:
    if not command:
        return []
    program, rest = _program(command[0], folder), command[1:]
    if program == "python":
        while rest and rest[0] in _BARE_FLAGS:
            rest.pop(0)
        if rest and (tool := _console_script(rest[0], folder)) is not None:
            program, rest = tool, rest[1:]  # python /…/bin/torchrun is torchrun, as /proc shows it
    return [program, *_arguments(rest, folder)]


def _program(word: str, folder: Path) -> str:
    """An installed program by its name, wherever it is installed; one of the user's own by its path."""
    name = os.path.basename(word)
    if _PYTHON.fullmatch(name):
        return "python"
    path = None if "/" not in word or _in_bin(folder / word) else _file(word, folder)
    return name if path is None else path


def _console_script(word: str, folder: Path) -> str | None:
    is_one = "/" in word and "." not in os.path.basename(word) and _in_bin(folder / word)
    return os.path.basename(word) if is_one else None


def _in_bin(path: Path) -> bool:
    return path.parent.name in ("bin", "sbin")


def _arguments(words: list[str], folder: Path) -> list[str]:
    found, script, ahead = [], None, list(words)
    while ahead:
        word = ahead.pop(0)
        if word == "-m" and ahead:
            found += [word, _module(ahead.pop(0), folder)]
        elif _is_aside(word):
            if "=" not in word and ahead and _is_value_of(word, ahead[0]):
                ahead.pop(0)
        elif script is None and (path := _file(word, folder)) is not None:
            script = path
            found.append(path)
        else:
            found.append(_plain(word, folder))
    return found


def _module(name: str, folder: Path) -> str:
    """A module of the folder by its path; an installed one by its name."""
    top = name.partition(".")[0]
    for place in (folder / top, folder / f"{top}.py"):
        if os.path.exists(place):
            return f"{os.path.realpath(place)}:{name}"
    return name


def _is_aside(word: str) -> bool:
    """Whether it is an option that does not change the work."""
    option = _OPTION.fullmatch(word)
    if option is None or (option[1] is None and option[3] is None):
        return False
    name = option[2].lower().replace("_", "-")
    last = name.rpartition(".")[2]
    return name in _ASIDE | _RESUMING or (last in _ASIDE and ("-" in last or last == "seed"))


def _is_value_of(option: str, word: str) -> bool:
    """Whether the word behind an option that is left out goes with it."""
    if option.lstrip("-").lower().replace("_", "-") in _RESUMING:
        return _CHECKPOINT.fullmatch(word) is not None
    return not re.match(r"-(?!\d)", word)


def _plain(word: str, folder: Path) -> str:
    """An argument without what differs from run to run, a path made absolute: one that can be nothing else, or leads to
    something."""
    head, equals, value = word.rpartition("=") if re.match(r"-{0,2}[\w.+-]+=", word) else ("", "", word)
    with suppress(OSError, ValueError):
        if re.match(r"\.{0,2}/", value) or (("/" in value or "." in value) and os.lstat(folder / value)):
            value = os.path.realpath(folder / value)
    if not value.isdigit():
        value = _PASSING.sub("*", value)
    return f"{head}{equals}{value}"


def _file(word: str, folder: Path) -> str | None:
    """The path of a regular file, without links; `None` where the word names none."""
    try:
        return os.path.realpath(folder / word) if os.path.isfile(folder / word) else None
    except ValueError:  # a NUL
        return None
