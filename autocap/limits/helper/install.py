"""Puts the helper's systemd units in place, and takes them away; every step is said, and with --dry-run only said."""

import grp
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from autocap.errors import AutocapError
from autocap.job.processes import package_root
from autocap.job.trusted_code import writable
from autocap.limits.helper.connection import POWERFUL

USUAL_GROUP = "gpupower"
SOCKET, SERVICE = "autocap-helper.socket", "autocap-helper.service"
_UNITS = Path("/etc/systemd/system")
_SYSTEMD = Path("/run/systemd/system")  # there where systemd runs the machine
_GROUP = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_OF_SYSTEMD = frozenset('"\\\\%$')  # what a unit's command gives a meaning
_HIDDEN = ("/home", "/root", "/run/user")  # from the service, by ProtectHome


class CannotInstall(AutocapError):
    """The helper is not to be run as a service here; the message says what is in the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """said: as a sentence is, in the imperative. act: does it."""

    said: str
    act: Callable[[], object]


def install_steps(
    group: str, *, units: Path = _UNITS, systemd: Path = _SYSTEMD, python: str = sys.executable
) -> list[Step]:
    """What sets the service up. Raises CannotInstall where somebody else than root could change what it runs."""
    if not _GROUP.fullmatch(group):
        raise CannotInstall(f"'{group}' is no name of a group; take letters and digits, as in {USUAL_GROUP}")
    if group in POWERFUL:
        raise CannotInstall(
            f"the group {group} may do more than set power limits, so its members cannot be the helper's users; take a "
            f"group of its own, as {USUAL_GROUP}"
        )
    _require_roots(python)
    if shutil.which("systemctl") is None or not systemd.is_dir():
        raise CannotInstall(
            "systemd does not run this machine, as in most containers; have its supervisor run "
            f"`autocap helper serve --group {group}` as root"
        )
    steps = []
    if not _is_group(group):
        steps.append(_command("groupadd", "--system", group))
    texts = unit_texts(group, python)
    other_socket = (units / SOCKET).exists() and (units / SOCKET).read_text() != texts[SOCKET]
    for name, text in texts.items():
        steps.append(Step(said=f"write {units / name}", act=_writer(units / name, text)))
    steps.append(_command("systemctl", "daemon-reload"))
    if other_socket:  # one that listens keeps its group until it is made anew, which no running service allows
        steps += [_command("systemctl", "stop", SERVICE), _command("systemctl", "stop", SOCKET)]
    return [
        *steps,
        _command("systemctl", "enable", "--now", SOCKET),
        _command("systemctl", "try-restart", SERVICE),
    ]


def uninstall_steps(*, units: Path = _UNITS) -> list[Step]:
    """What takes the service away; limits that are lent are put back by its end. The group and the policy stay."""
    there = [units / name for name in (SOCKET, SERVICE) if (units / name).exists()]
    if not there:
        return []
    return [
        _command("systemctl", "disable", "--now", SOCKET),
        _command("systemctl", "stop", SERVICE),
        *(Step(said=f"remove {path}", act=path.unlink) for path in there),
        _command("systemctl", "daemon-reload"),
    ]


def carry_out(steps: Sequence[Step], say: Callable[[str], object], *, dry_run: bool) -> None:
    """One after the other. say: takes a line a step. Raises CannotInstall at the first that fails."""
    for step in steps:
        say(f"would {step.said}" if dry_run else step.said)
        if dry_run:
            continue
        try:
            step.act()
        except (OSError, subprocess.CalledProcessError) as error:
            raise CannotInstall(f"could not {step.said}: {error}; what was done before it stays") from error


def unit_texts(group: str, python: str = sys.executable) -> dict[str, str]:
    """The units' text by file name."""
    folder = files("autocap.limits.helper") / "units"
    command = f'"{python}" -I -m autocap'  # -I: nothing of an environment or a folder is imported
    return {
        name: (folder / name).read_text().replace("@GROUP@", group).replace("@COMMAND@", command)
        for name in (SOCKET, SERVICE)
    }


def _require_roots(python: str) -> None:
    """Whoever can write what the service runs would be root."""
    if not python.isprintable() or not _OF_SYSTEMD.isdisjoint(python):
        raise CannotInstall(
            f"the path of the interpreter, {python!r}, has what means something to systemd; {_ELSEWHERE}"
        )
    root = package_root()
    code = [os.path.join(root, "autocap"), *(path for path in sys.path if os.path.isdir(path))]
    for place in dict.fromkeys((python, *map(os.path.abspath, code))):
        real = os.path.realpath(place)
        if any(real == hidden or real.startswith(hidden + "/") for hidden in _HIDDEN):
            raise CannotInstall(f"{place} is in a home, which a service does not see; {_ELSEWHERE}")
        who = writable(place)
        if who is not None:
            raise CannotInstall(f"{place} belongs to this autocap, and {who}, who would be root with it; {_ELSEWHERE}")
    for folder, _, names in os.walk(os.path.join(root, "autocap")):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            status = os.stat(path)
            if status.st_uid != 0 or status.st_mode & 0o022:
                raise CannotInstall(f"{path} can be written by others than root; {_ELSEWHERE}")


_ELSEWHERE = "have root install autocap, as into /opt/autocap, and call that one"


def _is_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True


def _command(*words: str) -> Step:
    return Step(said="run " + " ".join(words), act=lambda: subprocess.run(words, check=True))


def _writer(path: Path, text: str) -> Callable[[], None]:
    def write() -> None:
        temporary = path.with_name(f"{path.name}.new")
        temporary.write_text(text)
        temporary.chmod(0o644)
        temporary.rename(path)

    return write
