"""Counts the optimiser steps of a child of `autocap run`, without a line of its code. Python 3.7 or later.

`autocap run` puts this file's directory first on PYTHONPATH, so that Python imports it at start-up in place of the
user's own sitecustomize. It steps aside at once (`_hand_over`), and, where AUTOCAP_STEP_MAP names a map, leaves a
finder behind that waits for torch's optimisers to be imported. The map is a small shared file: a header, then a slot
a process; `autocap.progress.steps.map` creates and reads it. Where AUTOCAP_VALUES names the file of a recurring job's
values, a line is added to it when the program ends for want of memory. Whatever goes wrong here, the child goes on as
if we were not there.

A slot holds native 8-byte words: pid, start time (clock ticks since boot), rank (-1: none), 1 if the steps are
counted by hand, CLOCK_MONOTONIC of the first step (ns), then count, CLOCK_MONOTONIC of the last step (ns) and a check
word, the exclusive or of both with the process's salt. No word is ever torn, and a mixture of two steps, or of two
owners of a slot, fails the check. A sequence lock would need memory barriers, which Python does not have.
"""

import _thread
import os
import sys
import time

TYPE_CHECKING = False  # importing typing costs milliseconds; so does evaluating annotations, which are quoted therefore
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

MAP_VARIABLE = "AUTOCAP_STEP_MAP"
VALUES_VARIABLE, VALUES_MAGIC, OUT_OF_MEMORY = "AUTOCAP_VALUES", b"autocap values 1", "autocap:out-of-memory"
MAGIC = b"autocap1"
HEADER_FORMAT, HEADER_BYTES = "@8sQQ", 64  # magic, number of slots, bytes of a slot
SLOT_FORMAT, SLOT_BYTES = "@QQqQQQQQ", 64
EXPLICIT_OFFSET, STEP_OFFSET = 24, 40

_OPTIMIZERS = "torch.optim.optimizer"
_HOLDER = "_autocap_stephook"  # the key in sys.modules of the copy of this file that counts for the process
_SOON_NS, _LATEST_NS = 1_000_000, 1_000_000_000  # until a map that is not there is looked for again, at first and later
_PATIENCE = 4  # unpublished steps per known optimiser after which the busiest one counts as replaced


def salt(pid: int, start_ticks: int) -> int:
    """What ties a slot's check word to its owner."""
    return (pid << 32) ^ start_ticks


class StepCounter:
    """The steps of this process. Publishing begins, and takes a slot, with the first of them.

    Counts are kept per optimiser and the highest is published, so that the two of a GAN do not add up. It must
    neither fall nor stall when an optimiser is replaced. So one that is met for the first time starts at the
    published count; and when too many steps pass without one that is published (the busiest optimiser is idle, and
    an older one goes on), the optimiser that steps is raised to the published count.

    No lock is waited for: one held across a fork or taken twice by a signal handler would stop the job for ever, while
    two threads that race can only lose a step or publish two in the wrong order, which the next step puts right.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._automatic = True  # optimiser steps count: nobody counts by hand, and the map can be written
        self._usable = True
        self._explicit = False
        self._published = 0
        self._silent = 0  # optimiser steps since the last one that was published
        self._counts: dict[int, int] = {}  # by id of the optimiser
        self._watches: dict[int, object] = {}  # weak references that clear the entry of a dead optimiser
        self._map: Any = None  # an mmap; the type's name would need its import
        self._pack: Any = None  # struct.Struct.pack_into, of a slot's last three words
        self._at = self._salt = 0
        self._first_ns = self._next_ns = 0  # of the first step; when a map that was not there is looked for again
        self._pause_ns = _SOON_NS
        self._taking = _thread.allocate_lock()  # held while a slot is being taken

    def optimizer_stepped(self, optimizer: object) -> None:
        """Count a step of one optimiser."""
        if not self._automatic:
            return
        try:
            key = id(optimizer)
            count = self._counts.get(key)
            if count is None:
                count = self._meet(key, optimizer)
            count += 1
            if count <= self._published:
                self._silent += 1
                if self._silent > _PATIENCE * len(self._counts):
                    count = self._published + 1
            self._counts[key] = count
            if count > self._published:
                self._silent = 0
                self._publish(count)
        except Exception:  # noqa: BLE001  # never into the child
            self.stop()

    def step(self) -> None:
        """Count an iteration by hand. Optimiser steps have counted the first one; they do not count any more then."""
        if not self._usable:
            return
        try:
            count = self._published + 1
            if not self._explicit:
                self._explicit, self._automatic = True, False
                count = self._published or 1
                if self._map is not None:
                    at = self._at - STEP_OFFSET + EXPLICIT_OFFSET
                    self._map[at : at + 8] = (1).to_bytes(8, sys.byteorder)
            self._publish(count)
        except Exception:  # noqa: BLE001  # never into the child
            self.stop()

    def restart(self, path: str = "") -> None:
        """Count from nothing, in that map or in the same; after a fork the slot is the parent's."""
        self.__init__(path or self._path)  # type: ignore[misc]  # every field back to its beginning

    def _meet(self, key: int, optimizer: object) -> int:
        """Begin to count an optimiser that has not stepped before."""
        import weakref

        counts, watches = self._counts, self._watches

        def forget(_: object) -> None:  # its id may come back as another object's
            counts.pop(key, None)
            watches.pop(key, None)

        try:
            watches[key] = weakref.ref(optimizer, forget)
        except TypeError:  # cannot be watched; if its id comes back, patience puts the count right
            watches.pop(key, None)
        return self._published

    def _publish(self, count: int) -> None:
        now_ns = time.monotonic_ns()
        self._published = count
        if self._map is not None or (now_ns >= self._next_ns and self._take_slot(now_ns)):
            self._pack(self._map, self._at, count, now_ns, count ^ now_ns ^ self._salt)

    def _take_slot(self, now_ns: int) -> bool:
        """Map a slot of our own. False when another process or thread is just taking one, or where the map is yet to be
        made, as on the other nodes of a job: a later step tries again."""
        import fcntl
        import struct

        if not self._taking.acquire(False):
            return False
        self._first_ns = self._first_ns or now_ns
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                # A record lock, which does not touch the flock of the map's maker. It is dropped with the descriptor.
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._map is None:
                    self._claim(fd, struct)
            except BlockingIOError:
                return False
            finally:
                os.close(fd)
        except FileNotFoundError:
            self._next_ns, self._pause_ns = now_ns + self._pause_ns, min(2 * self._pause_ns, _LATEST_NS)
            return False
        finally:
            self._taking.release()
        return True

    def _claim(self, fd: int, struct: "ModuleType") -> None:
        """Write our identity into a slot, under the lock. Raises where the map cannot be used."""
        import mmap

        magic, slots, slot_bytes = struct.unpack_from(HEADER_FORMAT, os.pread(fd, HEADER_BYTES, 0))
        size = HEADER_BYTES + slots * SLOT_BYTES
        if magic != MAGIC or slot_bytes != SLOT_BYTES or os.fstat(fd).st_size < size:
            raise ValueError("not a step map of this version")
        pid, start_ticks = os.getpid(), _start_ticks("self")
        at = _free_slot(os.pread(fd, size, 0), struct, (pid, start_ticks))
        # Without a descriptor of its own, where Python can: a program that closes all it did not open would close
        # that one too, and its number would be another file's when we close it at the end.
        options = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        mapped = mmap.mmap(fd, size, **options)
        rank = os.environ.get("RANK", "")
        own_salt = salt(pid, start_ticks)  # a check word that cannot fit marks the slot as being written
        own = pid, start_ticks, int(rank) if rank.isdecimal() else -1, int(self._explicit)
        struct.pack_into(SLOT_FORMAT, mapped, at, *own, self._first_ns, 0, 0, own_salt ^ 1)
        self._pack = struct.Struct("@QQQ").pack_into
        self._salt, self._at, self._map = own_salt, at + STEP_OFFSET, mapped

    def stop(self) -> None:
        """Count no more."""
        self._automatic = self._usable = False


def _start_ticks(pid: "int | str") -> int:
    """When a process started, clock ticks since boot; 0 when there is none of that number."""
    try:
        fd = os.open("/proc/%s/stat" % pid, os.O_RDONLY | os.O_CLOEXEC)  # noqa: UP031
    except OSError:
        return 0
    try:
        text = os.read(fd, 4096)
    finally:
        os.close(fd)
    return int(text[text.rindex(b")") + 2 :].split()[19])  # the command's name may hold spaces and brackets


def _free_slot(table: bytes, struct: "ModuleType", own: "tuple[int, int]") -> int:
    """The offset of the first slot that is free or ours (before an exec), else of one whose process is dead."""
    taken = []
    for at in range(HEADER_BYTES, len(table), SLOT_BYTES):
        pid, start_ticks = struct.unpack_from("@QQ", table, at)
        if pid == 0 or (pid, start_ticks) == own:
            return at
        taken.append((at, pid, start_ticks))
    for at, pid, start_ticks in taken:
        if _start_ticks(pid) != start_ticks:
            return at
    raise ValueError("the step map is full")


_counter: "StepCounter | None" = None


def counter() -> "StepCounter | None":
    """The one counter of this process, whichever copy of this file made it; None outside `autocap run`."""
    global _counter
    holder = sys.modules.get(_HOLDER)
    if holder is not None and holder.__dict__ is not globals():
        return holder.counter()  # type: ignore[no-any-return]  # a copy of this very file
    if _counter is None and os.environ.get(MAP_VARIABLE):
        _counter = StepCounter(os.environ[MAP_VARIABLE])
        os.register_at_fork(after_in_child=_counter.restart)
        sys.modules[_HOLDER] = sys.modules[__name__]
    return _counter


def _after_optimizer_step(optimizer: object, args: object, kwargs: object) -> None:
    if _counter is not None:
        _counter.optimizer_stepped(optimizer)


# What torch.compiler.disable sets, without its import or its call: a compiled optimiser step calls the hook as it is
# instead of tracing it, which would warn in the user's name about calls that cannot be traced.
_after_optimizer_step._torchdynamo_disable = True  # type: ignore[attr-defined]
_after_optimizer_step._torchdynamo_disable_msg = "autocap counts optimiser steps"  # type: ignore[attr-defined]


def _register(module: "ModuleType") -> None:
    register = getattr(module, "register_optimizer_step_post_hook", None)  # none before torch 2
    if register is not None:
        register(_after_optimizer_step)


class _OptimizerWatch:
    """A finder that finds nothing of its own: it sees torch's optimisers being imported, once, and is gone."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "ModuleSpec | None":
        if name != _OPTIMIZERS:
            return None
        finders = sys.meta_path  # those before us were asked already and had nothing
        for finder in finders[finders.index(self) + 1 if self in finders else 0 :]:
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find_spec(name, path, target) if find_spec is not None else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _RegisteringLoader(spec.loader, self)  # type: ignore[assignment]  # duck-typed
                return spec
        return None


class _RegisteringLoader:
    """The module's own loader, but for a look at the module once it is there."""

    def __init__(self, loader: "Any", watch: _OptimizerWatch) -> None:
        self._loader, self._watch = loader, watch

    def __getattr__(self, name: str) -> "Any":
        return getattr(self._loader, name)

    def exec_module(self, module: "Any") -> None:
        module.__spec__.loader = module.__loader__ = self._loader  # as it would be without us
        self._loader.exec_module(module)
        try:
            _register(module)
            sys.meta_path.remove(self._watch)
        except Exception:  # noqa: BLE001  # never into the child
            pass


_NO_MEMORY_TYPES = ("MemoryError", "OutOfMemoryError", "ResourceExhaustedError")  # Python's, PyTorch's, TensorFlow's
_NO_MEMORY_TEXTS = ("out of memory", "resource_exhausted")  # CUDA's, and JAX's
_MOST_CAUSES = 8


def lacked_memory(error: "BaseException | None") -> bool:
    """Whether an error, or one that led to it, is for want of memory."""
    for _ in range(_MOST_CAUSES):
        if error is None:
            return False
        if any(kind.__name__ in _NO_MEMORY_TYPES for kind in type(error).__mro__):
            return True
        text = str(error).lower()
        if any(part in text for part in _NO_MEMORY_TEXTS):
            return True
        error = error.__cause__ or error.__context__
    return False


def tell_of_memory() -> None:
    """Where a recurring job is followed: when the program ends by an error for want of memory, say so there."""
    path = os.environ.get(VALUES_VARIABLE)
    if not path:
        return
    before = sys.excepthook

    def told(kind: "Any", error: "Any", trace: "Any") -> None:
        try:
            if lacked_memory(error):
                _append(path, f"{time.monotonic_ns()} {OUT_OF_MEMORY} 1.0\n".encode())
        except Exception:  # noqa: BLE001  # never into the child
            pass
        before(kind, error, trace)

    sys.excepthook = told


def _append(path: str, line: bytes) -> None:
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.pread(fd, len(VALUES_MAGIC), 0) == VALUES_MAGIC:
            os.write(fd, line)
    finally:
        os.close(fd)


def start() -> None:
    """Begin to wait for torch, unless another copy of this file does already, or nobody wants to know."""
    if _HOLDER in sys.modules or counter() is None:
        return
    if _OPTIMIZERS in sys.modules:
        _register(sys.modules[_OPTIMIZERS])
    else:
        sys.meta_path.insert(0, _OptimizerWatch())


def _hand_over() -> None:
    """Leave sys.path and the name sitecustomize to the user's own, and import it.

    Raises what that raises, an ImportError when there is none: `site` treats it as it would have without us. The
    environment keeps our directory, so that processes which the child starts count too.
    """
    directory = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != directory]
    sys.path_importer_cache.pop(directory, None)
    del sys.modules["sitecustomize"]
    __import__("sitecustomize")


if __name__ == "sitecustomize":
    for _begin in (start, tell_of_memory):
        try:  # noqa: SIM105  # contextlib would be one more import
            _begin()
        except Exception:  # noqa: BLE001  # never into the child
            pass
    _hand_over()
