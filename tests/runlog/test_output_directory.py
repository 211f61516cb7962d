"""Where files are written: nothing that somebody else put in the way is followed, opened or written through."""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autocap.cli import main
from autocap.errors import RunDirectoryError
from autocap.job.invoking_user import InvokingUser, acting_as
from autocap.reports import rendering
from autocap.reports.rendering import present_run
from autocap.runlog.directory import RunDirectory
from autocap.runlog.event_log import read_events
from autocap.runlog.output_directory import OutputDirectory, OutputRefused
from tests.runlog.test_runlog import EVENTS, STARTED_AT, a_run, created

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
NOBODY = InvokingUser(uid=65534, gid=65534, groups=(65534,), name="nobody", home="/")
OUR_TEMPORARY = ".autocap-0123456789abcdef.tmp"


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that everybody may write to; pytest's own lie behind a private one."""
    path = Path(tempfile.mkdtemp(prefix="autocap-test-"))
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


def put(path: Path, name: str = "report.html") -> None:
    with OutputDirectory(path) as place:
        place.put(name, b"new")


@pytest.mark.parametrize("name", ["report.html", "period.svg", "half-written.tmp"])
def test_a_link_that_stands_where_a_file_belongs_is_replaced_and_not_followed(tmp_path, victim, name) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(victim)
    put(tmp_path / "out")
    put(tmp_path / "out", name)
    assert victim.read_text() == "precious"
    assert (tmp_path / "out" / name).read_bytes() == b"new"
    assert not (tmp_path / "out" / name).is_symlink()


def test_a_named_pipe_in_the_way_is_replaced_and_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report.html")
    put(tmp_path)
    assert (tmp_path / "report.html").read_bytes() == b"new"


def test_a_directory_in_the_way_is_an_error_and_leaves_no_temporary(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    with pytest.raises(IsADirectoryError):
        put(tmp_path)
    assert os.listdir(tmp_path) == ["report.html"]


def test_the_page_of_a_run_says_what_is_in_its_way(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    (run / "report.html").mkdir()
    with pytest.raises(RunDirectoryError, match=r"report\.html cannot be written: Is a directory; check its permiss"):
        rendering.write_page(run, present_run(run, read_events(run)))


def test_a_directory_that_is_renamed_meanwhile_is_still_the_one_written_to(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "out").mkdir()
    with OutputDirectory(tmp_path / "out") as place:
        (tmp_path / "out").rename(tmp_path / "moved")
        (tmp_path / "out").symlink_to("/")
        place.put("report.html", b"new")
    assert (tmp_path / "moved" / "report.html").read_bytes() == b"new"


@pytest.mark.parametrize("name", ["events.jsonl", "samples.csv.gz", "result.json", "sweep.csv"])
def test_a_link_without_a_target_is_a_run_that_is_there_and_is_removed_by_force(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunDirectoryError, match=re.escape(f"holds a run already ({name})")):
        created(run)
    created(run, force=True).close()
    assert not (tmp_path / "elsewhere").exists()


def test_force_removes_temporaries_of_killed_writers_and_nothing_else(tmp_path: Path, victim: Path) -> None:
    run = a_run(tmp_path / "run")
    kept = [".autocap-mine.tmp", "x.tmp", ".autocap-00000000000000aa.tmp"]
    for name in (OUR_TEMPORARY, *kept[:2]):
        (run / name).touch()
    (run / kept[2]).symlink_to(victim)
    created(run, force=True).close()
    assert sorted(os.listdir(run)) == sorted([*kept, "events.jsonl", "samples.csv.gz"])


@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda log: log.symlink_to(log.parent / "victim")], ids=["pipe", "directory", "link"]
)
def test_a_log_that_is_no_file_cannot_be_gone_on_with(tmp_path: Path, make: Callable, victim: Path) -> None:
    make(tmp_path / "events.jsonl")
    with pytest.raises(OutputRefused, match=r"events\.jsonl is no regular file; look at it and remove it"):
        RunDirectory.reopen(tmp_path)
    assert victim.read_text() == "precious"


def test_what_could_not_be_made_to_the_end_is_not_left_half_made(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File name too long"):
        OutputDirectory(tmp_path / "a" / "b" / ("x" * 300))
    with pytest.raises(OSError, match="File name too long"):
        OutputDirectory(tmp_path / ("y/" * 3000))
    assert list(tmp_path.iterdir()) == []


def test_links_of_our_own_on_the_way_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "again").symlink_to(tmp_path / "link")
    put(tmp_path / "again" / ".." / "real" / "new")
    assert (tmp_path / "real" / "new" / "report.html").read_bytes() == b"new"


def test_links_in_a_circle_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        OutputDirectory(tmp_path / "one" / "out")


@needs_root
def test_root_follows_no_link_that_another_user_made(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    with acting_as(NOBODY):
        (shared / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OutputRefused, match=r"link is a symbolic link that user 65534 may have put there, and is not"):
        put(shared / "link" / "out")
    assert list((tmp_path / "target").iterdir()) == []


@needs_root
def test_a_user_follows_no_link_that_another_made_where_all_may_write(shared: Path) -> None:
    other = InvokingUser(uid=4242, gid=4242, groups=(4242,), name="4242", home="/")
    with acting_as(NOBODY):
        (shared / "real").mkdir(mode=0o777)
        (shared / "link").symlink_to("real")
        put(shared / "link" / "mine")
    with acting_as(other), pytest.raises(OutputRefused, match="is a symbolic link that user"):
        put(shared / "link" / "theirs")
    assert os.listdir(shared / "real") == ["mine"]


@needs_root
@pytest.mark.parametrize(
    ("uid", "mode", "whose"), [(65534, 0o755, "belongs to user 65534"), (0, 0o777, "can be written")]
)
def test_root_writes_to_no_directory_of_others(shared: Path, uid: int, mode: int, whose: str) -> None:
    run = shared / "run"
    run.mkdir()
    os.chown(run, uid, -1)
    run.chmod(mode)
    with pytest.raises(RunDirectoryError, match=f"{whose}.*: output directories of other users are refused for root; "):
        RunDirectory.create(run, False, STARTED_AT)
    assert list(run.iterdir()) == []


@needs_root
def test_what_root_makes_is_its_own_whatever_its_umask(shared: Path) -> None:
    before = os.umask(0)
    try:
        with RunDirectory.create(shared / "a" / "run", False, STARTED_AT) as run:
            run.append(EVENTS[0])
        created(shared / "a" / "run", force=True).close()
    finally:
        os.umask(before)
    assert (shared / "a" / "run").stat().st_mode & 0o022 == 0


def test_plots_of_a_period_are_not_drawn_through_a_link(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "trace.csv").write_text("t_s,power_w\n" + "".join(f"{n},{100 + n % 7}\n" for n in range(60)))
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "period.svg").symlink_to(victim)
    assert main(["period", str(tmp_path / "trace.csv"), "--plots", "--out", str(tmp_path / "plots")]) == 0
    assert victim.read_text() == "precious"
    assert (tmp_path / "plots" / "period.svg").read_bytes().startswith(b"<svg")
