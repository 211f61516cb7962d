"""Services, played by a server of our own: what they answer, and how they fail."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from autocap.cli import main
from autocap.events.quote import CARBON
from autocap.plugins.grid import electricity_maps, entsoe, great_britain
from autocap.session.prices.https import get_json
from autocap.session.prices.reading import require
from autocap.session.prices.series import SourceRefused


@pytest.mark.parametrize(
    ("carbon", "said"),
    [
        ("electricitymap:DE", "(did you mean electricitymaps?)"),
        ("electricitymaps:../DE", "'../DE' is no zone; give one such as DE_LU, FR or US-CAL-CISO"),
    ],
)
def test_what_is_no_service(carbon: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--carbon", carbon, "--", "true"]) == 2
    assert said in capsys.readouterr().err


T0 = 1_769_875_200.0  # 2026-01-31T16:00Z
TOKEN = "secret-token"
GB = {
    "data": [
        {"from": "2026-01-31T16:00Z", "to": "2026-01-31T16:30Z", "intensity": {"forecast": 120, "actual": 118}},
        {"from": "2026-01-31T16:30Z", "to": "2026-01-31T17:00Z", "intensity": {"forecast": 90, "actual": None}},
        {"from": "2026-01-31T17:30Z", "to": "2026-01-31T18:00Z", "intensity": {"forecast": None, "actual": None}},
    ]
}
LATEST = {"zone": "DE", "carbonIntensity": 302, "datetime": "2026-01-31T16:00:00.000Z"}
FORECAST = {
    "forecast": [
        {"carbonIntensity": 301, "datetime": "2026-01-31T16:00:00.000Z"},
        {"carbonIntensity": 250.5, "datetime": "2026-01-31T17:00:00.000Z"},
    ]
}


class Server:
    """answers: by path without its query: a status and a body. asked: paths, with the token that came with each."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.asked: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, self.headers["auth-token"]))
                status, body = outer.answers.get(self.path.partition("?")[0], (404, b"{}"))
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Not to the terminal."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def say(self, path: str, answer: object, status: int = 200) -> None:
        self.answers[path] = status, json.dumps(answer).encode()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def test_great_britain_has_half_hours_and_gaps(server: Server) -> None:
    server.say("/intensity/2026-01-31T16:00Z/fw48h", GB)
    series = great_britain.read("", T0 + 30, server.url)
    assert series.steps == ((T0, 120.0), (T0 + 1800, 90.0), (T0 + 3600, None), (T0 + 5400, None))
    assert (series.kind, series.until_s) == (CARBON, T0 + 7200)


def test_electricity_maps_gives_the_hours_to_come_where_the_plan_has_them(server, monkeypatch) -> None:
    monkeypatch.setenv(electricity_maps.TOKEN, TOKEN)
    server.say("/carbon-intensity/latest", LATEST)
    server.say("/carbon-intensity/forecast", FORECAST)
    series = electricity_maps.read("DE", T0, server.url)
    assert (series.steps, series.until_s) == (((T0, 302.0), (T0 + 3600, 250.5)), T0 + 7200)
    assert server.asked[0] == ("/carbon-intensity/latest?zone=DE", TOKEN)
    server.say("/carbon-intensity/forecast", {"error": "not in your plan"}, 403)
    assert electricity_maps.read("DE", T0, server.url).steps == ((T0, 302.0),)


@pytest.mark.parametrize(
    ("status", "body", "complaint"),
    [
        (401, b"{}", "answers with HTTP 401"),
        (500, b"", "answers with HTTP 500"),
        (302, b"", "answers with HTTP 302"),
        (200, b"<html>", "answers with no JSON"),
        (200, b"[" * 100_000, "answers with no JSON"),
        (200, b'{"zone": "DE"}', "answers with something else than was asked for"),
        (200, b'{"carbonIntensity": -1, "datetime": "2026-01-31T16:00Z"}', "answers with something else"),
        (200, b'{"carbonIntensity": true, "datetime": "2026-01-31T16:00Z"}', "answers with something else"),
        (200, b'{"carbonIntensity": 1, "datetime": "2026-01-31T16:00"}', "answers with something else"),
        (200, b" " * (5 << 20), "answers with more than 4 MiB"),
    ],
)
def test_whatever_a_server_answers_is_told_in_a_sentence_that_keeps_the_token(
    server: Server, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, complaint: str
) -> None:
    monkeypatch.setenv(electricity_maps.TOKEN, TOKEN)
    server.answers["/carbon-intensity/latest"] = status, body
    with pytest.raises(SourceRefused) as told:
        electricity_maps.read("DE", T0, server.url)
    assert complaint in str(told.value)
    assert TOKEN not in str(told.value)
    assert "\n" not in str(told.value)
    assert len(server.asked) == 1


def test_a_server_that_is_not_there_or_silent_is_not_waited_for() -> None:
    with pytest.raises(SourceRefused, match=r"127\.0\.0\.1:1 cannot be reached: 'Connection refused'"):
        get_json("http://127.0.0.1:1/")
    silent = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # listens, and never accepts
    with silent, pytest.raises(SourceRefused, match=r"has not answered within 0\.1 s"):
        get_json(f"http://127.0.0.1:{silent.server_port}/", within_s=0.1)


def test_day_ahead_prices_hold_a_quarter_of_an_hour_each_and_may_be_below_0() -> None:
    at = [datetime.fromtimestamp(T0 + 900.0 * place, UTC) for place in (0, 1, 2, 4)]
    series = entsoe.as_series(dict(zip(at, (80.0, -12.5, float("nan"), 10.0), strict=True)))
    assert series.currency == "EUR"
    assert series.steps == ((T0, 0.08), (T0 + 900, -0.0125), (T0 + 1800, None), (T0 + 2700, None), (T0 + 3600, 0.01))
    assert series.until_s == T0 + 4500


def test_what_a_service_lacks_here_is_said_before_the_job_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(electricity_maps.TOKEN, raising=False)
    with pytest.raises(SourceRefused, match=f"asks for a token; set {electricity_maps.TOKEN} to yours"):
        require("electricitymaps:DE", CARBON)
    require("gb", CARBON)
