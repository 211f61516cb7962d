"""Files that live as long as their maker: nobody removes a living one's, nor anything else, and a dead one's goes."""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autocap.job.shared_files import SharedFile, directories, remove_dead

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
NOBODY = 65534


def in_fork(work: Callable[[], object]) -> None:
    """Do it in a process that ends as one that is killed: nothing is unwound."""
    if (pid := os.fork()) == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


def dead(folder: Path) -> Path:
    """The file of a maker that was killed."""
    in_fork(lambda: SharedFile(folder, 64))
    (path,) = folder.glob("autocap-steps-2-*")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Iterator[SharedFile]:
    made = SharedFile(tmp_path, 4096)
    yield made
    made.close()


def test_it_is_private_allocated_not_inheritable_and_gone_when_it_is_closed(file: SharedFile) -> None:
    status = file.path.stat()
    assert status.st_mode & 0o777 == 0o600
    assert status.st_blocks * 512 >= status.st_size == 4096
    assert not os.get_inheritable(file.fd)
    file.close()
    assert not file.path.exists()
    file.close()


def test_what_a_killed_maker_left_is_removed(tmp_path: Path) -> None:
    path = dead(tmp_path)
    assert remove_dead([tmp_path], observe=True) == [path]
    assert path.exists()
    assert remove_dead([tmp_path]) == [path]
    assert not path.exists()
    assert remove_dead([tmp_path]) == []


def test_what_a_living_maker_has_stays_though_it_is_another_process(file: SharedFile, tmp_path: Path) -> None:
    in_fork(lambda: remove_dead([tmp_path]))
    remove_dead([tmp_path])
    assert file.path.exists()


def test_it_lives_on_in_a_process_to_which_it_was_handed_down(tmp_path: Path) -> None:
    file = SharedFile(tmp_path, 64)
    handed = os.dup(file.fd)  # as a child has it that outlives us
    os.close(file.fd)
    remove_dead([tmp_path])
    assert file.path.exists()
    os.close(handed)
    remove_dead([tmp_path])
    assert not file.path.exists()


def test_a_fork_neither_removes_it_nor_keeps_it_alive(tmp_path: Path) -> None:
    maker_ends, fork_ends = os.pipe(), os.pipe()

    def make_and_fork() -> None:
        file = SharedFile(tmp_path, 64)
        if os.fork() == 0:  # outlives its maker
            file.close()
            os.close(maker_ends[1])
            os.close(fork_ends[0])
            os.write(fork_ends[1], b"!")
            os.read(maker_ends[0], 1)
            os._exit(0)
        assert file.path.exists()

    in_fork(make_and_fork)
    os.close(fork_ends[1])
    assert os.read(fork_ends[0], 1) == b"!"
    (path,) = tmp_path.glob("autocap-steps-2-*")
    remove_dead([tmp_path])
    assert not path.exists()
    os.close(maker_ends[1])
    assert os.read(fork_ends[0], 1) == b""  # only now: it lived until here
    os.close(maker_ends[0])
    os.close(fork_ends[0])


def as_folder(path: Path, victim: Path) -> None:
    path.mkdir()


def as_link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def as_hard_link(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def as_fifo(path: Path, victim: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("replace", [as_folder, as_link, as_hard_link, as_fifo])
def test_what_was_put_in_its_place_stays_and_closing_says_nothing(
    file: SharedFile, tmp_path: Path, replace: Callable[[Path, Path], None]
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    file.path.unlink()
    replace(file.path, victim)
    file.close()
    assert os.path.lexists(file.path)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("put", [as_folder, as_link, as_fifo])
def test_what_is_no_file_is_left_whatever_its_name(tmp_path: Path, put: Callable[[Path, Path], None]) -> None:
    victim, path = tmp_path / "victim", tmp_path / f"autocap-steps-2-{'0' * 32}"
    victim.touch()
    put(path, victim)
    remove_dead([tmp_path])
    assert os.path.lexists(path)
    assert victim.exists()


@pytest.mark.parametrize(
    "name",
    [
        f"autocap-steps-{'0' * 32}",  # of a version whose makers hold no lock: it may live
        f"autocap-steps-2-{'0' * 31}",
        f"autocap-steps-2-{'0' * 33}",
        f"autocap-steps-2-{'x' * 32}",
        f"x-autocap-steps-2-{'0' * 32}",
        f"autocap-steps-2-{'0' * 32}\n",
    ],
)
def test_a_file_of_any_other_name_is_left(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    remove_dead([tmp_path])
    assert (tmp_path / name).exists()


def test_a_place_that_is_not_there_is_passed_over(tmp_path: Path) -> None:
    path = dead(tmp_path)
    (tmp_path / "file").touch()
    remove_dead([tmp_path / "missing", tmp_path / "file", tmp_path])
    assert not path.exists()


def test_closing_touches_no_file_that_has_its_descriptor_by_now(file: SharedFile, tmp_path: Path) -> None:
    fd = file.fd
    with (tmp_path / "other").open("w") as other:
        os.dup2(other.fileno(), fd)  # in a program that closes all that it did not open
    file.close()
    assert not file.path.exists()
    assert os.fstat(fd).st_ino == (tmp_path / "other").stat().st_ino
    os.close(fd)


def test_a_program_without_standard_streams_does_not_write_into_it(tmp_path: Path) -> None:
    def make() -> None:
        os.closerange(0, 3)
        assert SharedFile(tmp_path, 64).fd > 2

    in_fork(make)


def test_whoever_removes_while_others_make_removes_no_living_one(tmp_path: Path) -> None:
    over = threading.Event()

    def keep_removing() -> None:
        while not over.is_set():
            remove_dead([tmp_path])

    remover = threading.Thread(target=keep_removing)
    remover.start()
    made = [SharedFile(tmp_path, 64) for _ in range(100)]
    over.set()
    remover.join()
    assert all(file.path.exists() for file in made)
    for file in made:
        file.close()


def test_a_directory_that_takes_none_says_so_and_keeps_none(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        SharedFile(tmp_path / "missing", 64)
    with pytest.raises(OSError, match=r"File too large|No space"):
        SharedFile(tmp_path, 2**62)
    assert list(tmp_path.iterdir()) == []


def test_they_lie_in_memory_or_among_the_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/scratch")
    assert directories() == (Path("/dev/shm"), Path("/scratch"), Path("/tmp"))
    monkeypatch.setenv("TMPDIR", "")
    assert directories() == (Path("/dev/shm"), Path("/tmp"))


@needs_root
class TestUsers:
    @pytest.fixture
    def shared(self) -> Iterator[Path]:
        """A directory as /dev/shm is; pytest's own are for root alone."""
        folder = Path(tempfile.mkdtemp(prefix="autocap-shared-"))
        folder.chmod(0o1777)
        yield folder
        shutil.rmtree(folder)

    def as_nobody(self, work: Callable[[], object]) -> None:
        def drop_and_work() -> None:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            work()

        in_fork(drop_and_work)

    def test_root_removes_what_a_user_s_dead_maker_left(self, shared: Path) -> None:
        self.as_nobody(lambda: SharedFile(shared, 64))
        (path,) = shared.iterdir()
        assert path.stat().st_uid == NOBODY
        remove_dead([shared])
        assert not path.exists()
        assert os.geteuid() == 0

    def test_root_removes_with_no_more_than_the_owner_s_rights(self, shared: Path) -> None:
        self.as_nobody(lambda: SharedFile(shared, 64))
        (path,) = shared.iterdir()
        shared.chmod(0o755)  # where its owner could not remove it
        remove_dead([shared])
        assert path.exists()
        assert os.geteuid() == 0

    def test_a_user_leaves_another_s(self, shared: Path) -> None:
        path = dead(shared)
        path.chmod(0o666)
        shared.chmod(0o777)  # even where it could
        self.as_nobody(lambda: remove_dead([shared]))
        assert path.exists()
