"""Whatever lies in the state directory: a sentence each, and no traceback, no wait, no memory."""

import json
import os
import resource
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autocap.errors import AutocapError, GuardError
from autocap.job.processes import ProcessId, boot_id
from autocap.limits import Guardian, Settled, settle
from autocap.limits.journal import LOCK, SUFFIX, UNFINISHED, Entry, OtherSchema, Turned, decode, encode, file_name
from autocap.limits.lock import DeviceLock, holder_pid
from autocap.limits.state_dir import StateDir
from tests.doubles import file_device
from tests.doubles.file_device import FileLimits

ENTRY = Entry(
    kind="file", uuid="GPU-1", original_w=260.0, last_w=200.0, boot_id=boot_id(), owner=ProcessId(2**22 + 1, 1)
)
LONGEST = 600  # characters of a sentence, beside the names in it
QUICK_S = 2.0
DEEP, LONG = "[" * 30_000, "9" * 400

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device files")


def _socket(path: Path) -> None:
    before = os.getcwd()
    os.chdir(path.parent)  # a socket's address is short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("s")
            os.rename("s", path.name)
    finally:
        os.chdir(before)


THINGS = [
    pytest.param(os.mkfifo, id="pipe"),
    pytest.param(lambda path: (path / "inner").mkdir(parents=True), id="folder"),
    pytest.param(lambda path: path.symlink_to("/dev/zero"), id="endless"),
    pytest.param(lambda path: path.symlink_to("nowhere"), id="dangling"),
    pytest.param(lambda path: path.symlink_to(path.name), id="circle"),
    pytest.param(_socket, id="socket"),
    pytest.param(lambda path: (path.touch(mode=0o600), os.truncate(path, 1 << 40)), id="huge"),
    pytest.param(lambda path: path.write_bytes(b"0" * 5000), id="zeros"),
    # /dev/zero under another name
    pytest.param(lambda path: os.mknod(path, 0o20600, os.makedev(1, 5)), id="device", marks=needs_root),
]


@pytest.fixture
def state_dir(tmp_path):
    path = tmp_path / "state"
    path.mkdir(mode=0o700)
    return path


def memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def check(settled: list[Settled], *secrets: str) -> None:
    for one in settled:
        assert "\n" not in one.sentence
        assert len(one.sentence) < LONGEST
        assert not any(secret in one.sentence for secret in secrets)


def complaint(work: Callable[[], object], *kinds: type[Exception]) -> str:
    """What an error of those kinds says; nothing where there is none."""
    try:
        work()
    except kinds as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [SUFFIX, LOCK, *UNFINISHED])
@pytest.mark.parametrize("make", THINGS)
def test_anything_at_any_name_costs_a_sentence_at_most(state_dir, tmp_path, suffix, make):
    gpu = file_device.make(tmp_path)
    make(state_dir / file_name(gpu.uuid, suffix))
    began_s, before_mb = time.monotonic(), memory_mb()
    check(settle(state_dir, observe=True))

    def run() -> None:
        with Guardian(kind="file", gpus=[gpu], limits=FileLimits(), job=None, state_dir=state_dir) as guardian:
            guardian.set_caps([200.0])

    said = complaint(run, AutocapError)
    assert "\n" not in said
    assert not said or any(words in said for words in ("look at it", "damaged", "cannot be written"))
    assert FileLimits().requested_w(gpu.uuid) == 260.0
    check(settle(state_dir))
    assert time.monotonic() - began_s < QUICK_S
    assert memory_mb() - before_mb < 50


def _with(**changes: object) -> str:
    return json.dumps({**json.loads(encode(ENTRY)), **changes})


def _of_knob(of: dict[str, object] | None = None, **changes: object) -> str:
    fields = json.loads(encode(replace(ENTRY, knob=Turned(name="clock", unit="MHz", tolerance=37.5))))
    return json.dumps({**fields, "knob": {**fields["knob"], **(of or {})}, **changes})


@given(data=st.binary(max_size=300) | st.text().map(str.encode))
@example(data=DEEP.encode())
@example(data=(DEEP + "]" * len(DEEP)).encode())
@example(data=('{"schema":' * 20_000).encode())
@example(data=LONG.encode() * 100)
@example(data=b"\xff\xfe[\x00]\x00")
@example(data=b'{"schema": 1}')
@example(data=('{"schema": ' + LONG + "}").encode())
@example(data=b'{"schema": [["root:x:0:0"]]}')
@example(data=b'{"schema": 1.5}')
@example(data=_with(original_w=int(LONG)).encode())
@example(data=_with(last_w=1e300).encode())
@example(data=_with(uuid="\ud800").encode())
@example(data=_with(boot_id="\udcff" * 5).encode())
@example(data=_with(kind="\x1b[2J" * 5).encode())
@example(data=_with(kind="k" * 50_000).encode())
@example(data=_with(kind="k" * 300).encode())
@example(data=_with(owner={"pid": int(LONG), "start_ticks": 1}).encode())
@example(data=_with(owner={"pid": 1, "start_ticks": int(LONG)}).encode())
@example(data=_with(owner={"pid": 1, "start_ticks": int(LONG), "secret": 1}).encode())
@example(data=_with(job={"pid": 2**60, "start_ticks": -1}).encode())
@example(data=_with(settings=[{"name": "\ud800", "value": 1}]).encode())
@example(data=_with(settings=[{"name": "enabled", "value": int(LONG)}]).encode())
@example(data=_with(settings={"name": 1}).encode())
@example(data=_with(settings=7).encode())
@example(data=_with(more=1).encode())
@example(data=_with(knob={"name": "clock", "unit": "", "tolerance": 1}).encode())
@example(data=_of_knob({"name": "\x1b[2J"}).encode())
@example(data=_of_knob({"name": "c" * 50_000}).encode())
@example(data=_of_knob({"unit": "\x1b]52;c;AAAA\x07"}).encode())
@example(data=_of_knob({"unit": "\ud800"}).encode())
@example(data=_of_knob({"unit": ["secret"]}).encode())
@example(data=_of_knob({"tolerance": -1.0}).encode())
@example(data=_of_knob({"tolerance": float("nan")}).encode())
@example(data=_of_knob({"tolerance": int(LONG)}).encode())
@example(data=_of_knob({"secret": 1}).encode())
@example(data=_of_knob(knob="root:x").encode())
@example(data=_of_knob(original=int(LONG)).encode())
@example(data=_of_knob(original=float("inf")).encode())
@example(data=_of_knob(last=-1e300).encode())
@example(data=_of_knob(original_w=1.0).encode())
@example(data=_of_knob().encode())
def test_any_bytes_in_an_entry_are_settled_with_one_short_sentence(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "state"
    with StateDir(path, sync=lambda fd: None) as state:
        state.write("GPU-1.json", data)
    said = complaint(lambda: decode(data), ValueError, OtherSchema)
    assert len(said) < 80
    assert said.isascii()
    found = settle(path)
    assert len(found) == 1
    check(found, "root:x", "9" * 50, "secret")
    check(settle(path))


@given(st.binary(max_size=40).filter(lambda name: name not in (b"", b".", b"..") and not set(name) & {0, 47}))
@example(b"%ffffff%.json")
@example(b"%d800%.json")
@example(b"%110000%.lock")
@example(b"\xff\xfe.json")
@example(b"\x1b]52;c;AAAA\x07.json")
@example(b".json")
@example(b".lock")
@example(b"a.b.json")
@example(b"a.b.json.tmp")
@example(b"%25%.json.old")
@example(b"a" * 250 + b".json")
@example(b"a" * 246 + b".json.tmp")
def test_any_name_in_the_state_directory_is_got_over(tmp_path_factory, name):
    path = tmp_path_factory.mktemp("names") / "state"
    StateDir(path).close()
    (Path(os.fsdecode(os.fsencode(path) + b"/" + name))).write_bytes(b"{")
    for _ in range(2):
        for one in settle(path):
            one.uuid.encode(errors="surrogateescape")
            assert len(one.sentence) < LONGEST + 3 * 255


@pytest.mark.parametrize("text", ["9" * 5000, "9" * 100_000, "-1", "12 13", "²", "", "\0" * 10, "1e9"])
def test_a_lock_that_names_no_process_names_nobody(state_dir, text):
    with StateDir(state_dir) as state, DeviceLock(state, "GPU-1"):
        (state_dir / "GPU-1.lock").write_text(text)
        assert holder_pid(state, "GPU-1") is None
        with pytest.raises(AutocapError, match=r"^GPU-1 is controlled by another autocap; wait for it"):
            DeviceLock(state, "GPU-1")


@pytest.mark.parametrize(
    "make", [lambda path: path.symlink_to("/etc"), lambda path: path.write_text("x"), lambda path: os.mkfifo(path)]
)
def test_what_is_no_directory_is_refused_in_one_sentence(tmp_path, make: Callable[[Path], None]):
    make(tmp_path / "state")
    with pytest.raises(GuardError, match=r"^the state directory .* AUTOCAP_STATE_DIR to a directory of your own$"):
        settle(tmp_path / "state")


@pytest.mark.parametrize("name", ["a/" * 3000, "a" * 5000, "\udcff", "\x1b[2J"])
def test_a_state_directory_of_any_name_is_made_or_refused(tmp_path, name):
    said = complaint(lambda: StateDir(tmp_path / name).close(), GuardError)
    assert not said or "cannot be used" in said
    assert len(os.listdir(tmp_path)) == (not said)  # none of many parents is made in vain
