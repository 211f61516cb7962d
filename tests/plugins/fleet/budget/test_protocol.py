"""What a budget's manager and its clients say: as it was said, strict about whatever else, and to whom it is said."""

import json
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocap.plugins.fleet.budget import connection, protocol
from autocap.plugins.fleet.budget.client import known_of
from autocap.wire.json_lines import BadMessage
from tests.session.test_pricing import CURVE

KNOWN = protocol.PublishCurve(
    caps_w=(100.0,), slowdown=(0.1,), energy=(0.9,), slowdown_stderr=(0.0,), energy_stderr=(0.0,)
)
REQUESTS: list[protocol.Request] = [
    protocol.Join(devices=("GPU-a", "GPU-b"), pid=7),
    protocol.Set(watts=(100.0, 120.5)),
    protocol.Beat(),
    KNOWN,
    protocol.Leave(),
    protocol.Change(watts=1200.0),
    protocol.Change(policy="fair"),
    protocol.Weigh(pid=7, weight=2.0),
    protocol.Ask(),
    protocol.End(),
]


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_arrives_as_it_was_sent(request_: protocol.Request) -> None:
    assert protocol.decode_request(protocol.encode_request(3, request_)) == (3, request_)


@pytest.mark.parametrize(
    "answer",
    [
        protocol.Done(),
        protocol.CeilingChanged(ceiling_w=120.0, put_back=True, notes=("so it is",)),
        protocol.Joined(original_w=(300.0, None), min_w=(100.0, 100.0), max_w=(300.0, 300.0), ceiling_w=250.0),
        protocol.Refusal(code=protocol.Code.NOT_ALLOWED, text="no"),
    ],
)
def test_an_answer_arrives_as_it_was_sent(
    answer: protocol.Done | protocol.CeilingChanged | protocol.Joined | protocol.Refusal,
) -> None:
    assert protocol.decode_answer(protocol.encode_answer(4, answer)) == (4, answer)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (protocol.encode_request(3, KNOWN), b'"op": "known"'),
        (protocol.encode_answer(4, protocol.CeilingChanged(ceiling_w=120.0)), b'"is": "told"'),
    ],
)
def test_a_message_is_called_on_the_wire_as_earlier_versions_call_it(line: bytes, kind: bytes) -> None:
    assert kind.replace(b" ", b"") in line.replace(b" ", b"")


def line(**changes: object) -> bytes:
    body = {"v": 1, "id": 1, "op": "set", "watts": [100.0]} | changes
    return json.dumps({key: value for key, value in body.items() if value != "absent"}).encode() + b"\n"


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (line(op="buy"), "op is none of join, set"),
        (line(watts="absent"), "set has the keys id, op, v, watts|set has the keys v, id, op, watts"),
        (line(more=1), "and no others"),
        (line(watts=[]), "watts are not 1 to"),
        (line(op="join", watts="absent", devices=["a", "a"], pid=3), "stands there twice"),
        (line(op="join", watts="absent", devices=["a"], pid=0), "pid is above 0"),
        (line(op="join", watts="absent", devices=["\x1b[2J"], pid=3), "cannot be printed"),
        (
            line(op="known", watts="absent", caps_w=[1.0], slowdown=[], energy=[1.0], slowdown_stderr=[0.0],
                 energy_stderr=[0.0]),
            "each column as many",
        ),
    ],
)  # fmt: skip
def test_what_is_no_request_is_refused(wrong: bytes, complaint: str) -> None:
    with pytest.raises(BadMessage, match=complaint):
        protocol.decode_request(wrong)


KEYS = st.sampled_from(["v", "id", "op", "watts", "policy", "devices", "pid"])
VALUES = st.none() | st.integers() | st.floats() | st.text() | st.lists(st.floats()) | st.just("set")


@given(st.dictionaries(KEYS, VALUES))
def test_whatever_object_arrives_is_a_request_or_refused(body: dict[str, object]) -> None:
    try:
        protocol.decode_request(json.dumps({"v": 1, "id": 1, "op": "change", **body}).encode())
    except BadMessage:
        return


def test_who_may_not_ask_is_told_so_and_not_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, within_s: float) -> None:
        raise PermissionError if path == Path("ours") else FileNotFoundError

    monkeypatch.setattr(connection, "BudgetConnection", refuse)
    with pytest.raises(connection.NoBudget, match="ours is not open to you; have who runs it pass `--group`"):
        connection.call([Path("ours"), Path("none")])
    with pytest.raises(connection.NoBudget, match="no budget runs here"):
        connection.call([Path("none")])


def test_a_queue_that_stays_full_is_said(tmp_path: Path) -> None:
    path = tmp_path / "full.sock"
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(str(path))
        listener.listen(0)
        for _ in range(2):  # one more than its length is what the kernel takes
            crowd = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            crowd.setblocking(False)
            with suppress(BlockingIOError):
                crowd.connect(str(path))
        with pytest.raises(connection.NoBudget, match="that none of our tries got through"):
            connection.call([path], within_s=0.0)


def test_a_curve_is_published_up_to_what_the_job_asks_for() -> None:
    searching, held = known_of(CURVE, 250.0, searching=True), known_of(CURVE, 250.0, searching=False)
    assert searching.caps_w == (100.0, 150.0, 200.0, 250.0)
    assert (held.caps_w, held.slowdown) == ((100.0, 150.0), pytest.approx((0.5, 0.1)))
    assert held.slowdown_stderr == pytest.approx((1.0, 0.011))  # what is hardly known stays a number
    assert held.energy_stderr == pytest.approx((0.018, 0.018))


def test_what_was_measured_below_a_ceiling_is_published_over_the_limit_found() -> None:
    below = known_of(CURVE, 300.0, searching=False)
    assert below.caps_w == (100.0, 150.0)
    assert all(slower > more for slower, more in zip(below.slowdown, (0.5, 0.1), strict=True))
    assert known_of(CURVE, 300.0, searching=True).caps_w[-1] == 300.0
