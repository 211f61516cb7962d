"""Under sudo, what becomes root's code, and where root writes, must be beyond the reach of others."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocap.errors import GuardError, UsageError
from autocap.job.invoking_user import InvokingUser
from autocap.job.trusted_code import replaceable, require_trusted, require_trusted_module, writable
from autocap.limits.state_dir import StateDir

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
UID, OTHER = 12345, 23456
USER = InvokingUser(uid=UID, gid=UID, groups=(UID,), name="ada", home="/")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that only root writes, in one that everybody does but where nobody removes what is another's."""
    path = Path(tempfile.mkdtemp(prefix="autocap-trusted-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def made(path: Path, *, uid: int = 0, gid: int = 0, mode: int = 0o755) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, uid, gid)
    path.chmod(mode)
    return path


def test_what_only_root_can_write_is_trusted(place: Path) -> None:
    assert writable(str(made(place / "a" / "b"))) is None
    assert writable(str(made(place / "group", mode=0o775))) is None  # of root's own
    assert replaceable(str(made(place / "sticky", mode=0o1777) / "new" / "newer")) is None
    assert writable(str(place / "not" / "there")) is None


@pytest.mark.parametrize(
    ("owner", "mode", "who"),
    [
        ((UID, UID), 0o755, f"user {UID}"),
        ((0, UID), 0o775, f"group {UID}"),
        ((0, 0), 0o757, "any user"),
        ((0, 0), 0o1777, "any user"),
    ],
)
def test_what_somebody_else_can_write_is_not(place: Path, owner: tuple[int, int], mode: int, who: str) -> None:
    theirs = made(place / "theirs", uid=owner[0], gid=owner[1], mode=mode)
    assert writable(str(theirs)) == f"{who} can write {theirs}"
    assert writable(str(theirs / "not" / "there")) == f"{who} can write {theirs}"
    inside = made(theirs / "roots")
    sticky_of_root = mode & 0o1000
    assert writable(str(inside)) == (None if sticky_of_root else f"{who} can write {theirs}")
    assert replaceable(str(inside)) == (None if sticky_of_root else f"{who} can write {theirs}")


def test_a_link_of_somebody_elses_on_the_way_is_not_trusted(place: Path) -> None:
    roots, theirs = made(place / "roots"), made(place / "theirs", uid=UID)
    (theirs / "link").symlink_to(roots)
    (place / "through").symlink_to(theirs / "link")
    assert writable(str(place / "through")) == f"user {UID} can write {theirs}"
    (place / "sticky").symlink_to(roots)
    os.chown(place / "sticky", UID, UID, follow_symlinks=False)
    assert writable(str(place / "sticky")) == f"user {UID} can write {place / 'sticky'}"
    (place / "round").symlink_to(place / "round")
    assert writable(str(place / "round")) is None  # leads nowhere


def test_an_installation_may_be_the_users_but_nobody_elses(place: Path) -> None:
    own = made(place / "venv", uid=UID, gid=UID, mode=0o775)
    assert writable(str(own), of_user=USER) is None
    shared = made(own / "shared", uid=UID, gid=OTHER, mode=0o775)
    assert writable(str(shared), of_user=USER) == f"group {OTHER} can write {shared}"
    assert writable(str(made(own / "others", uid=OTHER)), of_user=USER) == f"user {OTHER} can write {own / 'others'}"


def test_pythons_path_is_looked_through(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_trusted(USER)
    theirs = made(place / "theirs", uid=UID)
    monkeypatch.setattr(sys, "path", [*sys.path, str(theirs)])
    with pytest.raises(UsageError) as refused:
        require_trusted(USER)
    assert str(refused.value) == (
        f"Python would import from {theirs}, and user {UID} can write {theirs}, so their code would run as root under "
        "sudo; unset PYTHONPATH, and start an autocap that root has installed, as into /opt/autocap"
    )


def test_the_current_directory_of_python_m_counts_as_well(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made(place / "theirs", uid=UID))
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    with pytest.raises(UsageError, match=f"Python would import from {place / 'theirs'}, and user {UID} can write"):
        require_trusted(USER)


def test_an_installation_that_others_can_write_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = made(place / "prefix")
    packages = made(prefix / "lib" / "site-packages", mode=0o777)
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    with pytest.raises(UsageError, match=f"{packages} belongs to this autocap, and any user can write {packages}"):
        require_trusted(USER)
    packages.chmod(0o755)
    os.chown(packages, UID, UID)
    require_trusted(USER)


def test_what_stands_for_an_editable_install_is_no_directory(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made(place / "theirs", uid=UID))
    monkeypatch.setattr(sys, "path", [*sys.path, "__editable__.autocap-0.1.0.finder.__path_hook__"])
    require_trusted(USER)
    assert not any("__editable__" in entry for entry in sys.path)


def test_a_plug_in_is_looked_at_before_it_is_imported(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = made(place / "theirs", uid=UID)
    package = made(theirs / "their_device", uid=UID)
    (package / "__init__.py").write_text("raise SystemExit('was imported')")
    monkeypatch.syspath_prepend(theirs)
    with pytest.raises(UsageError, match=f"user {UID} can write"):
        require_trusted_module("their_device.gpu", USER)
    require_trusted_module("no_such_module.at_all", USER)


def test_sysfs_is_not_read_from_where_others_write(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOCAP_SYSFS", str(made(place / "sys")))
    require_trusted(USER)
    monkeypatch.setenv("AUTOCAP_SYSFS", str(made(place / "theirs", uid=UID) / "sys"))
    with pytest.raises(UsageError, match=rf"AUTOCAP_SYSFS is .*, and user {UID} can write .*/theirs, so root would"):
        require_trusted(USER)


def test_the_state_directory_is_not_reached_through_what_others_replace(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUDO_UID", str(UID))
    monkeypatch.setenv("SUDO_GID", str(UID))
    theirs = made(place / "theirs", uid=UID)
    with pytest.raises(GuardError, match=rf"can be replaced by others, as user {UID} can write {theirs}; under sudo"):
        StateDir(theirs / "state")
    assert list(theirs.iterdir()) == []
    (place / "link").symlink_to(theirs)
    with pytest.raises(GuardError, match="can be replaced by others"):
        StateDir(place / "link" / "state")
    StateDir(made(place / "sticky", mode=0o1777) / "state").close()
    monkeypatch.delenv("SUDO_UID")
    StateDir(theirs / "state").close()  # root itself may
