"""Lines are the same however they arrive, and one without an end takes no memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocap.wire.lines import Lines


@pytest.mark.parametrize("returns", [False, True])
@given(st.lists(st.sampled_from([b"x", b"yy" * 9, b"\r", b"\n", b"\r\n", b"\x0c", b"\xff"])).map(b"".join), st.data())
def test_lines_are_the_same_however_they_arrive(returns: bool, stream: bytes, data: st.DataObject) -> None:
    lines, found, rest = Lines(16, returns=returns), list[bytes](), stream
    while rest:
        count = data.draw(st.integers(1, len(rest)))
        found += lines.feed(rest[:count])
        rest = rest[count:]
        assert lines.held <= 17
        assert lines.is_too_long == (lines.held > 16)
    found.append(lines.end())
    assert lines.held == 0
    if returns:  # \r\n may arrive in two pieces
        found = [line for line in found if line]
        expected = [line for line in stream.replace(b"\r", b"\n").split(b"\n") if line]
    else:
        expected = stream.split(b"\n")
    assert found == [line[:17] for line in expected]
