"""`python -m bench fuzz --kinds helper`: that its expectations are right, and that it sees what goes against them."""

import json
import socket
import threading
from pathlib import Path

import pytest

from bench.fuzz.command import Round, complaints, p99, table
from bench.fuzz.law import ARRIVALS_MW, Computing, Law, Users
from bench.fuzz.players import Listener
from bench.fuzz.speech import Case, script


def law(rules: bool) -> Law:
    """As the bench makes it, but that nobody computes who would have to be started."""
    computing = Computing(Users(1001, 1002, 1003, 1004, 1005))
    computing._of = {1001: 11, 1002: 12, 1004: 14, 1005: 15, -1: 1}
    computing._gone = 99
    return computing.law(rules)


def test_without_a_policy_a_user_may_have_what_nobody_else_computes_on() -> None:
    found = law(rules=False)
    assert [gpu for gpu in range(8) if found.may(1001, gpu)] == [0, 2]
    assert found.may(1001, 0) == (found.machine.cards[0].min_mw, ARRIVALS_MW[0])


def test_with_a_policy_its_first_rule_decides() -> None:
    found = law(rules=True)
    assert {uid: [gpu for gpu in range(8) if found.may(uid, gpu)] for uid in (1001, 1002, 1003, 1004, 1005)} == {
        1001: [0, 2, 3],
        1002: [0, 1, 2, 3],
        1003: [2, 5],
        1004: [2],
        1005: [2, 7],
    }
    assert found.may(1001, 0) == (150_000, 220_000)
    assert (found.policy or "").count("[[rule]]") == 7


def test_a_limit_that_nobody_may_set_is_seen() -> None:
    found = law(rules=True)
    assert found.complaint(0, 200_000) is None
    assert found.complaint(4, ARRIVALS_MW[4]) is None
    assert found.complaint(4, 200_000) == "GPU 4 was set to 200 W, which nobody may"
    assert found.complaint(2, ARRIVALS_MW[2] + 1) == "GPU 2 was set to 240.002 W, which nobody may"


@pytest.mark.slow
def test_a_case_says_the_same_each_time() -> None:
    found = law(rules=True)
    cases = [Case(0, index) for index in range(200)]
    scripts = [[script(case.random(), found, 1001) for case in cases] for _ in range(2)]
    assert scripts[0] == scripts[1]
    acts = {step.act for steps in scripts[0] for step in steps}
    assert acts == {"open", "send", "read", "close", "half", "mute", "wait", "die"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a socket."""
    return tmp_path / "socket"


def heard(path: Path, request: bytes, *answers: object) -> tuple[int, list[str]]:
    """How many answers a client heard to what it said, and its complaints."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen(1)

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"".join(json.dumps(one).encode() + b"\n" for one in answers))

        thread = threading.Thread(target=answer)
        thread.start()
        client = Listener(str(path), law(rules=True), 1001)
        client.send(request)
        client.read()
        thread.join()
        client.close()
        return client.answered, client.complaints


def line(op: str, **own: object) -> bytes:
    return json.dumps({"v": 1, "id": 5, "op": op, **own}).encode() + b"\n"


def ok(**own: object) -> dict[str, object]:
    return {"v": 1, "id": 5, "ok": True, **own}


def uuid(gpu: int) -> str:
    return law(rules=True).uuids[gpu]


def test_right_answers_are_no_complaint(path: Path) -> None:
    refusal = {"v": 1, "id": None, "ok": False, "error": {"code": "bad_message", "text": "no"}}
    assert heard(path, line("hello") + b"x\n", ok(uid=1001), refusal) == (2, [])


@pytest.mark.parametrize(
    ("request_", "answers", "complaint"),
    [
        (line("hello"), [ok(uid=7)], "another user than it is"),
        (line("hello"), [{**ok(uid=1001), "id": 6}], "not the id of the request"),
        (line("hello"), [{"v": 1, "id": 5, "ok": False, "error": {"code": "x", "text": "y"}}], "no such error"),
        (line("lend", devices=[uuid(4)]), [ok(original_w=[238.75], min_w=[1], max_w=[1])], "GPUs (4,) are lent"),
        (line("set", watts=[150.0]), [ok()], "set without a lease"),
        (
            line("lend", devices=[uuid(0)]) + line("set", watts=[221.0]),
            [ok(original_w=[247.123], min_w=[150], max_w=[220]), ok()],
            "GPU 0 is set to 221.0 W",
        ),
        (line("give_back"), [ok(restored=[{"restored": False}])], "a limit is not back"),
    ],
)
def test_a_wrong_answer_is_seen(path: Path, request_: bytes, answers: list[object], complaint: str) -> None:
    _, complaints_ = heard(path, request_, *answers)
    assert [complaint in one for one in complaints_] == [True]


def test_the_table_counts_by_circumstances_and_in_all() -> None:
    good = Round(circumstances="a policy", cases=3, messages=40, seconds=2.0, sets=5, taken=[("beat", 2.0)] * 200)
    bad = Round(circumstances="no policy", cases=1, messages=10, seconds=1.0, complaints=[("leaks", "9 threads")])
    bad.taken = [("set", float(number)) for number in range(1, 101)]
    rows = [row.split() for row in table([good, bad])]
    assert rows[1][:11] == ["a", "policy", "3", "40", "20", "5", "0", "0", "0", "0", "0"]
    assert rows[2][:11] == ["no", "policy", "1", "10", "10", "0", "0", "1", "0", "0", "0"]
    assert rows[3][:5] == ["all", "4", "50", "17", "5"]
    assert complaints([good, bad]) == [("leaks", "no policy: 9 threads")]
    assert p99([one for _, one in bad.taken]) > 99.0
