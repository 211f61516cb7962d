"""When a source is read again, and what is said of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from autocap.events.quote import PRICE
from autocap.job.command_output import CommandFailed, output_of
from autocap.session.prices.reading import Said, Stamp, Watched
from autocap.session.prices.series import Series, SourceRefused

START_S = 1_700_000_000.0
FLAT = Series(kind=PRICE, currency="EUR", steps=((START_S, 0.1),), until_s=START_S + 1e6)


class Source:
    """Says what it is told to, and when it was asked."""

    def __init__(self, *answers: Series | Exception) -> None:
        self.answers, self.asked_s, self.stamp = list(answers), list[float](), (1, 1, 1)

    def read(self, source: str, kind: str, wall_s: float) -> Series:
        self.asked_s.append(wall_s - START_S)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stamped(self, path: str) -> Stamp | None:
        return self.stamp

    def watched(self, source: str) -> Watched:
        return Watched(PRICE, source, self.read, self.stamped)


def look(watched: Watched, seconds: int, at: Callable[[int], None] = lambda second: None) -> list[tuple[int, Said]]:
    found = []
    for second in range(seconds):
        at(second)
        said = watched.look(START_S + second)
        if said is not None:
            found.append((second, said))
    return found


def test_a_program_is_asked_every_five_minutes_and_sooner_after_it_has_failed() -> None:
    source = Source(SourceRefused("not now"), FLAT)
    found = look(source.watched("command:rows"), 500)
    assert source.asked_s == [0.0, 60.0, 360.0]
    assert [(second, said.trouble) for second, said in found] == [(0, "not now"), (60, "")]
    assert found[-1][1].series == FLAT


def test_a_file_is_read_again_once_it_has_changed_and_stays_so_for_a_look() -> None:
    source = Source(FLAT)
    watched = source.watched("file:rows.csv")

    def write(second: int) -> None:
        if 10 <= second < 14:  # bit by bit
            source.stamp = (second, second, 1)

    look(watched, 30, write)
    assert source.asked_s == [0.0, 1.0, 14.0]


def test_the_same_is_said_once() -> None:
    source = Source(SourceRefused("gone"), SourceRefused("gone"), FLAT, FLAT, SourceRefused("gone"))
    said = [said.trouble for _, said in look(source.watched("gb"), 1500)]
    assert said == ["gone", "", "gone"]


def test_a_fault_of_a_library_is_said_as_well() -> None:
    found = look(Source(ZeroDivisionError("by 0")).watched("entsoe:FR"), 1)
    assert found[0][1].trouble == "entsoe:FR: ZeroDivisionError: by 0"


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("sleep 100 & sleep 100", "has not ended within 0.2 s"),
        ("yes", "prints more than 1 MiB"),
        ("echo no such zone >&2; exit 4", "ended with status 4: 'no such zone'"),
        ("kill -9 $$", "ended with status 137"),
    ],
)
def test_a_command_that_hangs_or_fails_is_told_in_a_sentence_and_ended(command: str, complaint: str) -> None:
    with pytest.raises(CommandFailed) as told:
        output_of(command, within_s=0.2 if "sleep" in command else 20.0, most_bytes=1 << 20)
    assert complaint in str(told.value)
    assert "\n" not in str(told.value)


def test_what_a_command_has_left_running_is_not_waited_for(tmp_path: Path) -> None:
    assert output_of("echo rows; sleep 100 &", within_s=20.0, most_bytes=1 << 20) == b"rows\n"
