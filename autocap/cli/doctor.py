"""`autocap doctor`, and its lines."""

import argparse
import getpass
import os
import platform
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from autocap.job.invoking_user import invoking_user
from autocap.printing import note, put, put_json
from autocap.version import __version__

if TYPE_CHECKING:
    from autocap.cli.findings import Finding

_MARKS = {"ok": "ok", "note": "note", "trouble": "TROUBLE"}
_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-fA-F][0-9a-fA-F-]{7,}")


class Doctor:
    """Look at this machine without changing anything, and say what it has for tuning, what is in the way, and what
    mends it: the driver, rights, each GPU with its limit and sensors, which are watched for ten seconds, CPU packages,
    the helper, who else may set limits, and what the kernel offers.

    Exit status 0 where `autocap run`, started as this was, would tune a GPU or a CPU package; else 1, also where that
    cannot be told.
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--json",
            action="store_true",
            help="print {versions, findings, tunes, conclusion} for a bug report, without names of users, commands "
            "and this machine, and without UUIDs",
        )

    def run(self, args: argparse.Namespace) -> int:
        from autocap.cli.examination import examine

        if not args.json and sys.stderr.isatty():
            note("looking at this machine for about ten seconds; nothing is changed")
        found = examine()
        if args.json:
            versions = {"autocap": __version__, "driver": found.driver, "kernel": platform.release()}
            versions |= {"python": platform.python_version(), "machine": platform.machine()}
            findings = [{key: _nameless(text) for key, text in asdict(one).items()} for one in found.findings]
            conclusion = _nameless(found.conclusion)
            put_json({"versions": versions, "findings": findings, "tunes": found.tunes, "conclusion": conclusion})
        else:
            put(*_lines(found.findings), found.conclusion)
        return 0 if found.tunes else 1


def _lines(findings: "Sequence[Finding]") -> Iterator[str]:
    width = max(len(one.area) for one in findings)
    for one in findings:
        yield f"{_MARKS[one.verdict]:<9}{one.area:<{width}}  {one.text}"
        more = (one.follows, None if one.remedy is None else f"what to do: {one.remedy}")
        yield from (f"{'':<{width + 13}}{said}" for said in more if said is not None)


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
