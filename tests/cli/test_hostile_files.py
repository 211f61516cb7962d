"""Whatever lies in the files of a run, a command that reads them says what it has to say, or one sentence."""

import gzip
import io
import re
from contextlib import redirect_stderr, redirect_stdout

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autocap.cli
from autocap.runlog.directory import SAMPLES
from autocap.runlog.event_log import EVENTS
from tests.reports.test_hostile import odd_samples, spoilt

# What a terminal obeys, beside the ends of lines and tabulators; as autocap.text has it, written anew.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
WARNING = "autocap: warning: "  # of what is left out of a damaged file
COMMANDS = st.sampled_from(
    (("report", "RUN"), ("report", "--json", "RUN"), ("report", "--html", "RUN"), ("report", "RUN", "RUN"),
     ("runs", "."), ("runs", "--json", "."), ("period", f"RUN/{SAMPLES}"), ("period", "--json", f"RUN/{SAMPLES}"))
)  # fmt: skip


def said(words: list[str]) -> tuple[int, str, str]:
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", "strict", write_through=True) for _ in range(2)]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        status = autocap.cli.main(words)
    out, err = (stream.buffer.getvalue().decode() for stream in streams)  # type: ignore[attr-defined]  # bytes in memory
    return status, out, err


@settings(max_examples=60)
@given(seed=st.integers(0, 2**64), words=COMMANDS, packed=st.booleans(), cut=st.integers(0, 400))
def test_a_command_ends_as_it_should_and_prints_nothing_that_a_terminal_obeys(
    tmp_path_factory: pytest.TempPathFactory, seed: int, words: tuple[str, ...], packed: bool, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("runs", numbered=True)
    run = folder / "run"
    run.mkdir()
    (run / EVENTS).write_bytes(b"".join(spoilt(seed)))
    data = odd_samples(seed)
    (run / SAMPLES).write_bytes(gzip.compress(data)[: -cut or None] if packed else data)
    status, out, err = said([word.replace("RUN", str(run)) if word != "." else str(folder) for word in words])
    assert status in (0, 1, 2)
    assert OBEYED.search(out + err) is None
    lines = [line for line in err.splitlines() if not line.startswith(WARNING)]
    assert len(lines) <= (1 if status else 10), err
    assert not status or lines or out
