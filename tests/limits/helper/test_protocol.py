"""The protocol takes exactly what it says, whatever arrives, and what leaves can be read."""

import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocap.limits.guarded_limit import Restored
from autocap.limits.helper.protocol import (
    MOST_REQUEST_BYTES,
    Beaten,
    Code,
    Devices,
    Ended,
    Holder,
    LeasesEnded,
    LeaseStatus,
    Lent,
    Offer,
    Op,
    PutBack,
    Refusal,
    Request,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)
from autocap.wire.json_lines import BadMessage, NotALine

WATTS = st.floats(min_value=-1e6, max_value=1e6)
WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)


@pytest.mark.slow
@given(st.sampled_from(Op), st.integers(0, 2**53 - 1), st.lists(WORDS, min_size=1, max_size=8, unique=True), st.data())
def test_a_request_is_read_as_it_was_written(op, id, devices, data):
    watts = data.draw(st.lists(WATTS, min_size=1, max_size=8))
    names = {"devices": tuple(devices)}
    own = {Op.LEND: names, Op.END_LEASES: names, Op.LEAVE_OUT: names, Op.SET: {"watts": tuple(watts)}}.get(op, {})
    request = Request(id=id, op=op, **own)
    assert decode_request(encode_request(request)) == request


@given(st.binary(max_size=200))
def test_bytes_are_a_request_or_refused(data):
    with pytest.raises(BadMessage):
        decode_request(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8) | st.sampled_from(["lend", "set"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.sampled_from(Op), JSON, JSON, JSON)
def test_values_of_other_types_are_refused(op, version, id, value):
    body = {"v": version, "id": id, "op": op, "devices": value}
    try:
        request = decode_request(json.dumps(body).encode())
    except BadMessage:
        return
    assert (version, request.id, request.op) == (1, id, Op.LEND)
    assert all(type(name) is str and name.isprintable() for name in request.devices)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"", "no JSON"),
        (b"[1]", "no JSON object"),
        (b'{"v":1,"id":1,"op":"set","watts":[NaN]}', "no JSON"),
        (b'{"v":1,"id":1,"op":"set","watts":[-Infinity]}', "no JSON"),
        (b'{"v":1,"id":1,"op":"beat","id":2}', "a key twice"),
        (b"\xff\xfe", "no JSON in UTF-8"),
        (b"[" * (MOST_REQUEST_BYTES - 1), "no JSON"),
        (b'{"v":1,"id":1,"op":"beat"}' + b" " * MOST_REQUEST_BYTES, "longer than 4096 bytes"),
    ],
)
def test_what_is_no_line_of_json_is_told_from_what_is_no_request(line, says):
    with pytest.raises(NotALine, match=says):
        decode_request(line)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"v":1,"id":1,"op":"set","watts":[1e999]}', "not finite, or beyond"),
        (b'{"v":1,"id":1,"op":"set","watts":[' + b"9" * 400 + b"]}", "not finite, or beyond"),
        (b'{"v":1,"id":1,"op":"set","watts":[]}', "not 1 to 32"),
        (b'{"v":1,"id":1,"op":"lend","devices":["a","a"]}', "stands there twice"),
        (b'{"v":1,"id":1,"op":"lend","devices":["a\\n"]}', "cannot be printed"),
        (b'{"v":1,"id":1,"op":"lend"}', "has the keys v, id, op and devices"),
        (b'{"v":1,"id":1,"op":"beat","path":"/etc"}', "and no others"),
        (b'{"v":1,"id":1,"op":"shell"}', "op is none of"),
        (b'{"v":1,"id":1,"op":["beat"]}', "op is none of"),
        (b'{"v":2,"id":1,"op":"beat"}', "v is not 1"),
        (b'{"v":true,"id":1,"op":"beat"}', "v is not 1"),
    ],
)
def test_what_is_no_request_is_refused_with_its_id(line, says):
    with pytest.raises(BadMessage, match=says) as refused:
        decode_request(line)
    assert refused.value.id == 1
    assert not isinstance(refused.value, NotALine)


@pytest.mark.parametrize("id", [b"-1", b"1.0", b"null", b"true", b'"1"', b"9007199254740992"])
def test_an_id_is_a_whole_number(id):
    with pytest.raises(BadMessage, match="id is no whole number"):
        decode_request(b'{"v":1,"id":' + id + b',"op":"beat"}')


def test_deep_nesting_harms_no_thread_either():
    refused = []

    def read() -> None:
        for opening in (b"[", b'{"a":'):
            try:
                decode_request(opening * ((MOST_REQUEST_BYTES - 1) // len(opening)))
            except BadMessage as error:
                refused.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert len(refused) == 2


OFFER = Offer(
    uuid="u", kind="nvml", name="n", min_w=None, max_w=2.0, requested_w=None, allowed=False, why="w",
    lent_to=Holder(uid=1, pid=None),
)  # fmt: skip
RESTORED = Restored(uuid="u", original_w=None, final_w=1.5, restored=False, note="a", failure="b")
LEASE = LeaseStatus(uid=1, user="a", pid=2, devices=("u",), caps_w=(None,), since="s")


@pytest.mark.parametrize(
    ("op", "answer"),
    [
        (Op.DEVICES, Devices(devices=(OFFER,))),
        (Op.LEND, Lent(original_w=(None, 2.0), min_w=(1.0, 1.0), max_w=(3.0, 3.0), notes=("n",))),
        (Op.BEAT, Beaten(put_back=True)),
        (Op.RESTORE, PutBack(restored=(RESTORED,))),
        (
            Op.END_LEASES,
            LeasesEnded(ended=(Ended(lease=LEASE, restored=(RESTORED,)), Ended(lease=LEASE, restored=None))),
        ),
        (Op.SET, Refusal(code=Code.FOREIGN, text="t", uuid="u", expected_w=1.0, found_w=2.0)),
        (Op.SET, Refusal(code=Code.REFUSED, text="t", kind="overtaken")),
    ],
)
def test_an_answer_is_read_as_it_was_written(op, answer):
    assert decode_answer(encode_answer(7, answer), op) == (7, answer)


def test_an_answer_may_have_more_keys_than_are_known_and_not_fewer():
    assert decode_answer(b'{"v":1,"id":1,"ok":true,"put_back":false,"later":[1]}', Op.BEAT) == (
        1,
        Beaten(put_back=False),
    )
    with pytest.raises(BadMessage, match="a key of Beaten is missing"):
        decode_answer(b'{"v":1,"id":1,"ok":true}', Op.BEAT)


def test_no_text_that_leaves_moves_a_terminal_or_ends_a_line():
    line = encode_answer(None, Refusal(code=Code.GUARD, text="a\x1b[2J\n\u202e" + "b" * 5000))
    assert line.count(b"\n") == 1
    _, answer = decode_answer(line, Op.SET)
    assert answer.text.startswith("a\\x1b[2J\\n\\u202ebbb")
