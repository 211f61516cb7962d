"""What is asked of a VTN, when and with which credentials, how it fails and what is said of it, against a stand-in."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autocap.errors import UsageError
from autocap.plugins.fleet.openadr.source import (
    ID,
    SECRET,
    Credentials,
    CredentialsRefused,
    VtnSource,
    find_credentials,
)
from autocap.plugins.fleet.openadr.vtn import SILENT_S, Answer, Feed, Said, Vtn, Watched
from autocap.session.prices.series import SourceRefused
from bench.budget_faults.vtn import CLIENT_ID, CLIENT_SECRET, PROGRAM, StandInVtn, event
from tests.doubles.jobs import children

AT = "2026-01-31T16:00:00Z"
GOOD = Credentials(client_id=CLIENT_ID, client_secret=CLIENT_SECRET)
WRONG = Credentials(client_id=CLIENT_ID, client_secret="guessed-9912")
T0 = 1_769_875_200.0
SOURCE = VtnSource(url="https://vtn.example.com/3")


class Time:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def there() -> Iterator[StandInVtn]:
    with StandInVtn() as made:
        made.events.append(event("a", 1, start=AT))
        yield made


def client(
    there: StandInVtn, known: Credentials | None = GOOD, now: Callable[[], float] | None = None, **more: Any
) -> Vtn:
    return Vtn(VtnSource(url=there.url, **more), lambda: known, now or Time())


def paths(there: StandInVtn) -> list[str]:
    """What was asked, below the address of the VTN."""
    asked = [path.removeprefix("/openadr3/3.1.0/") for path in there.asked]
    there.asked.clear()
    return asked


def test_a_token_is_asked_for_once_until_it_nearly_ends_or_is_taken_back(there: StandInVtn) -> None:
    now = Time()
    vtn = client(there, now=now)
    assert [one["id"] for one in vtn.ask().events if isinstance(one, dict)] == ["a"]
    assert paths(there) == ["auth/server", "auth/token", "events?skip=0&limit=50"]
    vtn.ask()
    assert paths(there) == ["events?skip=0&limit=50"]
    now.now_s += 0.95 * there.lasts_s
    vtn.ask()
    assert len(there.tokens) == 2
    there.revoke()
    assert vtn.ask().events
    assert len(there.tokens) == 3


def test_before_3_1_the_token_is_the_vtns_own() -> None:
    with StandInVtn(says_where=False) as there:
        assert client(there).ask().events == []
        assert paths(there) == ["auth/server", "auth/token", "events?skip=0&limit=50"]


def test_events_come_in_pages_and_of_one_program(there: StandInVtn) -> None:
    there.events = [event(str(n), 1, start=AT) for n in range(120)]
    there.events.append(event("other", 1, start=AT, programID="p-2"))
    answer = client(there, program="peaks", targets=("g 1", "g2")).ask()
    assert len(answer.events) == 120
    assert not answer.more
    assert paths(there)[2:] == [
        "programs?targets=g+1&targets=g2&skip=0&limit=50",
        *(f"events?programID=p-1&targets=g+1&targets=g2&skip={skip}&limit=50" for skip in (0, 50, 100)),
    ]
    there.events = [event(str(n), 1, start=AT) for n in range(1001)]
    answer = client(there).ask()
    assert (len(answer.events), answer.more) == (1000, True)


def test_programs_are_asked_for_where_events_lack_units(there: StandInVtn) -> None:
    there.events[0]["payloadDescriptors"] = None
    assert client(there).ask().programs == {"p-1": PROGRAM}


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [("garbage", "answers with no JSON"), ("error", r"answers with HTTP 503 \(Service Unavailable\)")],
)
def test_a_vtn_that_fails_is_one_sentence(there: StandInVtn, fault: str, complaint: str) -> None:
    vtn = client(there)
    vtn.ask()
    there.fault = fault
    with pytest.raises(SourceRefused, match=complaint) as told:
        vtn.ask()
    assert there.tokens[0] not in str(told.value)
    there.fault = ""
    assert vtn.ask().events


def test_what_it_has_not_is_said(there: StandInVtn) -> None:
    with pytest.raises(SourceRefused, match=r"has no program 'peeks' for us; it has 'peaks'"):
        client(there, program="peeks").ask()
    with pytest.raises(SourceRefused, match=r"wants to know who asks \(HTTP 401\); pass --openadr-credentials"):
        client(there, None).ask()


def test_credentials_that_are_refused_are_not_tried_again_and_again(there: StandInVtn) -> None:
    now = Time()
    vtn = client(there, WRONG, now)
    for _ in range(3):
        with pytest.raises(SourceRefused, match=r"gives us no token: HTTP 400; see to the credentials") as told:
            vtn.ask()
        assert WRONG.client_secret not in str(told.value)
    assert paths(there) == ["auth/server", "auth/token"]
    now.now_s += 61
    with pytest.raises(SourceRefused):
        vtn.ask()
    assert paths(there) == ["auth/server", "auth/token"]


def test_all_answers_together_have_their_time(there: StandInVtn) -> None:
    class Slow(Time):
        def __call__(self) -> float:
            self.now_s += 4
            return self.now_s

    with pytest.raises(SourceRefused, match="has not answered within 20 s"):
        client(there, now=Slow()).ask()


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("http://vtn.example.com/3", "does not begin with https://"),
        ("http://127.0.0.1.example.com/3", "does not begin with https://"),
        ("ftp://127.0.0.1/3", "does not begin with https://"),
        ("https://ven:swordfish@vtn.example.com", "holds a name or a password"),
        ("https://vtn.example.com/?key=swordfish", "is no plain URL"),
        ("https://", "is no plain URL"),
        ("https://[::1", "is no URL"),
        ("vtn.example.com", "is no plain URL"),
    ],
)
def test_no_secret_goes_where_others_could_read_it(url: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as told:
        VtnSource(url=url)
    assert "swordfish" not in str(told.value)
    with pytest.raises(UsageError):
        VtnSource(url=url.removesuffix("/3") + "\x1b[31m")


def test_credentials_of_the_environment() -> None:
    assert find_credentials(None, {}) is None
    assert find_credentials(None, {ID: CLIENT_ID, SECRET: CLIENT_SECRET}) == GOOD
    assert CLIENT_SECRET not in repr(GOOD)
    with pytest.raises(CredentialsRefused, match="one is set; set both, or none"):
        find_credentials(None, {SECRET: CLIENT_SECRET})


@pytest.mark.parametrize(
    ("text", "mode", "complaint"),
    [
        ('client_id = "a"\nclient_secret = "swordfish"', 0o640, "its mode is 640; give it `chmod 600`"),
        ('client_id = "a"', 0o600, "has other keys than it should"),
        ('client_id = "a"\nclient_secret = "swordfish"\npassword = "b"', 0o600, "has other keys"),
        ('client_id = "a"\nclient_secret = 7', 0o600, "has a value that is no text of 1 to 4096 characters"),
        ("client_secret = swordfish", 0o600, "is no TOML"),
        ('client_id = "a"\nclient_secret = "swordfish"\ntoken_url = "http://b"', 0o600, "does not begin with https"),
    ],
)
def test_a_file_of_credentials_is_refused_without_its_words(
    tmp_path: Path, text: str, mode: int, complaint: str
) -> None:
    path = tmp_path / "credentials.toml"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(CredentialsRefused, match=complaint) as told:
        find_credentials(str(path))
    assert "swordfish" not in str(told.value)
    path.chmod(0o600)
    path.write_text('client_id = "a"\nclient_secret = "b"\nscope = "c"\ntoken_url = "https://d"')
    assert find_credentials(str(path)) == Credentials(
        client_id="a", client_secret="b", scope="c", token_url="https://d"
    )


def test_what_was_known_counts_while_a_vtn_cannot_be_asked() -> None:
    answers: list[Answer | Exception] = [
        SourceRefused("not yet"),
        Answer(events=[event("a", 1, start=AT)], programs={}),
        ZeroDivisionError("swordfish"),
        Answer(events=[], programs={}),
    ]

    def ask() -> Answer:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    watched = Watched(SOURCE, ask, "here")
    assert watched.look(T0, 0.0) == Said(trouble="not yet")
    assert watched.look(T0 + 1, 1.0) is None  # too early
    known = watched.look(T0 + 10, 10.0)
    assert [span.watts for span in known.spans] == [1000]
    assert watched.look(T0 + 20, 20.0) == Said(
        spans=known.spans, trouble="vtn.example.com cannot be asked (ZeroDivisionError)"
    )
    assert watched.look(T0 + 30, 30.0) == Said(spans=())


def test_each_bad_event_is_told_once_and_not_too_many_of_them() -> None:
    bad = [event(str(n), 1, start="soon") for n in range(60)]
    watched = Watched(SOURCE, lambda: Answer(events=list(bad), programs={}, more=True), "here")
    told = watched.look(T0, 0.0)
    assert len(told.notes) == 50
    assert "event 'peak 0' (0) is not followed: its start is 'soon'" in told.notes[0]
    assert told.notes[-1] == "other events cannot be followed either, and are not named any more"
    again = watched.look(T0, 100.0)
    assert again.notes == ()
    few = Watched(SOURCE, lambda: Answer(events=[], programs={}, more=True), "here").look(T0, 0.0)
    assert few.notes == ("vtn.example.com has more events than are read; name a program with --openadr-program",)


class Hearing:
    """A feed whose clock can be set forward."""

    def __init__(self, source: VtnSource) -> None:
        self.ahead_s = 0.0
        self.feed = Feed(source, lambda: time.monotonic() + self.ahead_s)

    def until(self, enough: Callable[[list[Said]], bool]) -> list[Said]:
        found, deadline_s = list[Said](), time.monotonic() + 60
        while not enough(found):
            assert time.monotonic() < deadline_s, f"waited in vain, heard {found}"
            found += self.feed.news()
            time.sleep(0.02)
        return found


@pytest.mark.slow
def test_a_process_that_asks_is_followed_by_another_where_it_hangs_or_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENADR_CLIENT_ID", CLIENT_ID)
    monkeypatch.setenv("OPENADR_CLIENT_SECRET", CLIENT_SECRET)
    before = children()
    with StandInVtn() as there:
        there.events.append(event("a", 1.5, start="0001-01-01", duration="P9999Y"))
        hearing = Hearing(VtnSource(url=there.url, every_s=1))
        try:
            (first,) = hearing.until(bool)
            assert [span.watts for span in first.spans] == [1500]
            words = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children() - before}
            assert all(there.url.encode() in line for line in words.values())
            assert not any(CLIENT_SECRET.encode() in line for line in words.values())
            (reader,) = (pid for pid, line in words.items() if b"autocap.job.supervisor" not in line)
            os.kill(reader, signal.SIGSTOP)
            hearing.ahead_s += SILENT_S
            told, again = hearing.until(lambda found: len(found) >= 2)
            assert f"was silent for {SILENT_S:g} s, and is started again" in told.trouble
            assert again.spans == first.spans
        finally:
            hearing.feed.close()
    deadline_s = time.monotonic() + 60
    while children() - before:  # the stopped one among them
        assert time.monotonic() < deadline_s, "a process is left"
        time.sleep(0.02)
