"""Where journal entries and locks live, opened so that nobody else can slip something in.

Every file is reached through the directory's descriptor and without following links, and is checked by its own
descriptor: what was checked is what is used.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from autocap.errors import GuardError
from autocap.job.invoking_user import invoking_user
from autocap.job.keeper import keeper
from autocap.job.trusted_code import replaceable

VARIABLE = "AUTOCAP_STATE_DIR"
ROOTS_PATH = Path("/run/autocap")
TEMPORARY = ".tmp"
ASIDE = ".old"  # what a file is called for the moment in which another takes its name
_MAX_BYTES = 1 << 16  # an entry has some hundred bytes; whatever is larger is none


def default_path() -> Path:
    """`AUTOCAP_STATE_DIR`, else `/run/autocap` for root, else `~/.local/state/autocap`. Under sudo that variable is
    root's. A user without a home has a place of their own in /tmp: where HOME is not set and no such user is known, and
    under sudo where it cannot be written."""
    is_parted, homeless = keeper() is not None, Path(f"/tmp/autocap-{os.getuid()}")
    try:
        home = Path.home()
    except RuntimeError:
        home = None
    if is_parted and (home is None or not os.access(home, os.W_OK | os.X_OK)):
        return homeless
    override = None if is_parted else os.environ.get(VARIABLE)
    if override:
        return Path(override).absolute()
    if os.geteuid() == 0:
        return ROOTS_PATH
    return homeless if home is None else home / ".local/state/autocap"


class StateDir:
    """The state directory, private to one user; made when it is missing.

    path: the directory, the default one when `None`. sync: makes a descriptor's file durable.
    Raises GuardError where the directory cannot be made, is a symbolic link, belongs to another user, or can be
    written by others; under sudo also where others could replace it.
    """

    def __init__(self, path: Path | None = None, *, sync: Callable[[int], None] = os.fsync) -> None:
        self.path = (default_path() if path is None else path).absolute()
        self._sync = sync
        try:
            self._require_own_way()
            _make_private(self.path)
            if self.path.is_symlink():
                raise GuardError(f"the state directory {self.path} is a symbolic link; remove it or {_ELSEWHERE}")
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise GuardError(f"the state directory {self.path} cannot be used: {error}; {_ELSEWHERE}") from error
        if (complaint := _complaint(os.fstat(self._fd))) is not None:
            os.close(self._fd)
            raise GuardError(f"the state directory {self.path} {complaint}; {_ELSEWHERE}")
        try:
            self._require_own_way()  # once more: somebody may have made a part of it since
        except GuardError:
            os.close(self._fd)
            raise

    def _require_own_way(self) -> None:
        """Under sudo, nobody else may replace it by a directory on the way to it. Raises GuardError."""
        found = None if invoking_user() is None else replaceable(str(self.path))
        if found is not None:
            raise GuardError(
                f"the state directory {self.path} can be replaced by others, as {found}; under sudo, set "
                "AUTOCAP_STATE_DIR to a directory that only root can write"
            )

    def __enter__(self) -> "StateDir":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._fd)

    def names(self) -> list[str]:
        """The names of everything in the directory, sorted."""
        return sorted(os.listdir(self._fd))

    def open(self, name: str, flags: int) -> int:
        """A descriptor of our own regular file; not inheritable. What is none is not even opened.

        Raises GuardError for a symbolic link, for what is no regular file and for another user's, and where it cannot
        be opened; FileNotFoundError as usual, without O_CREAT.
        """
        try:
            self._require_own(name, os.stat(name, dir_fd=self._fd, follow_symlinks=False))
        except FileNotFoundError:
            pass  # O_CREAT decides
        except OSError as error:
            raise self._unusable(name, error) from error
        try:
            fd = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600, dir_fd=self._fd)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not flags & os.O_CREAT:
                raise
            raise self._unusable(name, error) from error
        try:
            self._require_own(name, os.fstat(fd))  # what was looked at before may have been exchanged since
        except GuardError:
            os.close(fd)
            raise
        return fd

    def create(self, name: str) -> int:
        """A descriptor of a new, empty file that replaces whatever a killed writer has left under that name. Raises
        OSError."""
        self.unlink(name)
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=self._fd)

    def _require_own(self, name: str, status: os.stat_result) -> None:
        if stat.S_ISLNK(status.st_mode):
            complaint: str | None = "is a symbolic link"
        else:
            complaint = _complaint(status) if stat.S_ISREG(status.st_mode) else "is no regular file"
        if complaint is not None:
            raise GuardError(f"{self.path / name} {complaint} and is refused; look at it and remove it")

    def _unusable(self, name: str, error: OSError) -> GuardError:
        return GuardError(f"{self.path / name} cannot be opened: {error.strerror}; look at it, or {_ELSEWHERE}")

    def read(self, name: str) -> bytes | None:
        """The file's bytes, `None` where there is none. Raises GuardError as `open` does."""
        try:
            fd = self.open(name, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read(_MAX_BYTES)

    def write(self, name: str, data: bytes) -> None:
        """Replace the file as a whole; it is durable on return. Raises OSError, and then the old file stands."""
        temporary = name + TEMPORARY
        fd = self.create(temporary)
        try:
            self.fill(fd, data)
            self.rename(temporary, name)
        except OSError:
            with suppress(OSError):  # the first failure is the one to tell
                self.unlink(temporary)
            raise
        finally:
            os.close(fd)
        self.sync()

    def fill(self, fd: int, data: bytes) -> None:
        """Make those the bytes of an open file, durably. Raises OSError."""
        os.ftruncate(fd, 0)
        done = 0
        while done < len(data):  # a disk that fills up takes a part first and fails at the next try
            done += os.pwrite(fd, data[done:], done)
        self._sync(fd)

    def sync(self) -> None:
        """Make the names durable. Raises OSError."""
        self._sync(self._fd)

    def unlink(self, name: str) -> None:
        """Remove the file; none there is fine."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name."""
        os.link(old, new, src_dir_fd=self._fd, dst_dir_fd=self._fd, follow_symlinks=False)

    def is_still(self, name: str, fd: int) -> bool:
        """Whether the name still stands for the very file that the descriptor has open."""
        try:
            named = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        opened = os.fstat(fd)
        return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)


_ELSEWHERE = "set AUTOCAP_STATE_DIR to a directory of your own"


def _make_private(path: Path) -> None:
    """The directory and its missing parents, each with mode 0700; root's usual one with 0711, so that users reach the
    helper's socket in it, and nothing else."""
    missing: list[Path] = []
    while not _is_there(path):
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        with suppress(FileExistsError):  # another autocap was faster
            folder.mkdir(mode=0o711 if folder == ROOTS_PATH else 0o700)


def _is_there(path: Path) -> bool:
    """Raises OSError where nothing can be, as for a name that is too long: then no parent is made either."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


def _complaint(status: os.stat_result) -> str | None:
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}, not to user {os.geteuid()}"
    if status.st_mode & 0o022:
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return None
