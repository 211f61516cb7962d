"""A checkpoint: one file, replaced as a whole, so that a job that is killed while it writes keeps the one before."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch

from autocap.workloads import WorkloadError


def save(path: Path, state: Mapping[str, object]) -> None:
    """Write the state to disk and put it in place of what was there. Raises WorkloadError when that is not possible."""
    half = path.with_name(path.name + ".tmp")
    try:
        with half.open("wb") as file:
            torch.save(dict(state), file)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    except (OSError, RuntimeError) as error:
        with suppress(OSError):
            half.unlink(missing_ok=True)
        cause = error if isinstance(error, OSError) else error.__context__  # torch covers a full disk with its own
        if not isinstance(cause, OSError):
            raise
        raise _refused(path, cause) from error


def check_writable(path: Path) -> None:
    """Try before training whether a checkpoint could be written. Raises WorkloadError when it could not."""
    half = path.with_name(path.name + ".tmp")
    if path.is_dir():
        raise WorkloadError(f"checkpoint {path} is a directory; pass a file as --checkpoint")
    try:
        half.touch()
        half.unlink()
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> WorkloadError:
    return WorkloadError(f"checkpoint {path} cannot be written: {error.strerror}; pass another --checkpoint PATH")
