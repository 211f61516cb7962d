"""`autocap doctor`, and its lines."""

import argparse
import getpass
import os
import platform
import re
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from autocap import __version__
from autocap.config import values
from autocap.errors import AutocapError, UsageError
from autocap.job.blas_threads import one_thread
from autocap.job.invoking_user import invoking_user
from autocap.text import note, put, put_json

if TYPE_CHECKING:
    from autocap.cli.findings import Finding
    from autocap.runlog.output_directory import OutputDirectory

_MARKS = {"ok": "ok", "note": "note", "trouble": "TROUBLE"}
_WIDTH = len("recordings")  # the longest name of a step
_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-fA-F][0-9a-fA-F-]{7,}")


class Doctor:
    """Look at this machine without changing anything, and say what it has for tuning, what is in the way, and what
    mends it: the driver, rights, each GPU with its limit and sensors, which are watched for ten seconds, CPU packages,
    the helper, who else may set limits, and what the kernel offers.

    Exit status 0 where `autocap run`, started as this was, would tune a GPU or a CPU package; else 1, also where that
    cannot be told.

    With --record one GPU, the first that CUDA_VISIBLE_DEVICES leaves, is measured as well, for about a quarter of an
    hour: its calls and sensors, networks in training, counts, and what observing costs. Where PyTorch sees it and
    nobody computes on it, it is made to work for that. No setting is changed.
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--json",
            action="store_true",
            help="print {versions, findings, tunes, conclusion} for a bug report, without names of users, commands "
            "and this machine, and without UUIDs; with --record {recorded} too",
        )
        parser.add_argument(
            "--record", metavar="DIR", type=values.path, help="measure a GPU at length, and put it all into DIR"
        )

    def run(self, args: argparse.Namespace) -> int:
        with one_thread():
            from autocap.cli.examination import examine

        folder = None if args.record is None else _new_directory(args.record)
        if not args.json and sys.stderr.isatty():
            note("looking at this machine for about ten seconds; nothing is changed")
        found = examine()
        if args.json:
            versions = {"autocap": __version__, "driver": found.driver, "kernel": platform.release()}
            versions |= {"python": platform.python_version(), "machine": platform.machine()}
            said = {"versions": versions, "findings": _nameless_all(found.findings), "tunes": found.tunes}
            said["conclusion"] = _nameless(found.conclusion)
            put_json(said if folder is None else said | {"recorded": _nameless_all(_recorded(folder))})
        else:
            put(*_lines(found.findings), found.conclusion)
            for one in () if folder is None else _recorded(folder):
                put(*_lines([one], width=_WIDTH))
        return 0 if found.tunes else 1


def _new_directory(path: Path) -> "OutputDirectory":
    """For what is recorded. Raises AutocapError where that cannot be."""
    from autocap.runlog.output_directory import OutputDirectory

    if invoking_user() is not None:
        raise UsageError("--record does not work under sudo; run it without, as it only reads")
    try:
        if path.exists() and any(path.iterdir()):
            raise UsageError(f"--record {path} holds something already; name another directory")
        return OutputDirectory(path)
    except OSError as error:
        raise AutocapError(f"nothing can be put into {path}: {error.strerror}; name another directory") from error


def _recorded(folder: "OutputDirectory") -> "Iterator[Finding]":
    from autocap.cli.checklist import go_through

    note(f"recording to {folder.path}, for about a quarter of an hour; no setting is changed")
    with folder:
        yield from go_through(folder)


def _lines(findings: "Sequence[Finding]", width: int = 0) -> Iterator[str]:
    width = max(width, *(len(one.area) for one in findings))
    for one in findings:
        yield f"{_MARKS[one.verdict]:<9}{one.area:<{width}}  {one.text}"
        more = (one.follows, None if one.remedy is None else f"what to do: {one.remedy}")
        yield from (f"{'':<{width + 13}}{said}" for said in more if said is not None)


def _nameless_all(findings: "Iterable[Finding]") -> list[dict[str, str | None]]:
    return [{key: _nameless(text) for key, text in asdict(one).items()} for one in findings]


def _nameless(text: str | None) -> str | None:
    """Without what tells whose machine this is."""
    if text is None:
        return None
    user = invoking_user()
    homes, names = [] if user is None else [user.home], {} if user is None else {user.name: "USER"}
    with suppress(RuntimeError):
        homes.append(str(Path.home()))
    with suppress(OSError, KeyError):
        names[getpass.getuser()] = "USER"
    names |= {os.environ[one]: "USER" for one in ("USER", "LOGNAME", "SUDO_USER") if os.environ.get(one)}
    names |= {socket.gethostname(): "HOST", socket.gethostname().partition(".")[0]: "HOST"}
    text = _UUID.sub("UUID", text)
    for home in homes:
        if len(home) > 1 and home != "/root":
            text = text.replace(home, "~")
    for name, stands in names.items():
        if name and name != "root":
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", stands, text)
    return text
