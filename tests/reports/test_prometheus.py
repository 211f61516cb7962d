"""The exporter, scraped over HTTP as Prometheus would."""

import os
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from autocap.cli import main
from autocap.events import CapSet, Decided, Event, State, TrialStarted
from autocap.knobs import Knob
from autocap.records import Reading, Sample
from autocap.reports.prometheus.exporter import Exporter
from tests.cli.test_cli import EMULATED, Cli, cli
from tests.doubles.jobs import no_descriptors
from tests.doubles.logs import STARTED, status_after, until, whole_log
from tests.doubles.waiting import eventually

__all__ = ["cli"]  # the fixture

Scrape = dict[str, list[tuple[dict[str, str], float]]]


@pytest.fixture
def log() -> list[Event]:
    return list(whole_log())


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def exporter(port: int) -> Iterator[Exporter]:
    started = Exporter.start("127.0.0.1", port)
    yield started
    started.close()


def scrape(port: int) -> Scrape:
    """The samples by name, each with its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: Scrape = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def fed(exporter: Exporter, events: list[Event]) -> None:
    for event in events:
        exporter.event(event)


def test_a_whole_run_is_told_with_the_numbers_of_its_report(exporter: Exporter, port: int, log: list[Event]) -> None:
    fed(exporter, log)
    seen, status = scrape(port), status_after(log)
    assert status.summary.versus_baseline is not None
    gpu = status.summary.device.gpus[0] if status.summary.device else None
    labels = {"uuid": gpu.uuid, "gpu": "0", "emulated": "true"}
    assert seen["autocap_iterations_total"] == [(labels, status.tally.iterations)]
    assert seen["autocap_net_energy_saving_ratio"] == [(labels, status.saved_share)]
    versus = status.summary.versus_baseline
    assert seen["autocap_expected_energy_saving_ratio"][0][1] == pytest.approx(-(versus.energy_pct or 0) / 100)
    assert seen["autocap_net_metric_saving_ratio"][0][1] == pytest.approx(-(versus.net_metric_pct or 0) / 100)
    assert seen["autocap_iteration_seconds"][0][1] == status.period_s
    assert seen["autocap_gpu_info"] == [({**labels, "name": gpu.name, "kind": "simulated"}, 1.0)]
    about = {"version": "0", "mode": "run", "metric": "eds", "strategy": "golden", "confidence": "high"}
    assert seen["autocap_run_info"][0][0] == about


def test_exactly_one_state_holds(exporter: Exporter, port: int, log: list[Event]) -> None:
    fed(exporter, until(log, TrialStarted))
    states = {labels["autocap_state"]: value for labels, value in scrape(port)["autocap_state"]}
    assert states == {state.value: float(state is State.SEARCHING) for state in State}


def test_until_something_is_decided_nothing_is_expected(exporter: Exporter, port: int, log: list[Event]) -> None:
    fed(exporter, until(log, TrialStarted))
    assert "autocap_expected_energy_saving_ratio" not in scrape(port)
    exporter.event(next(event for event in log if isinstance(event, Decided)))
    assert scrape(port)["autocap_expected_energy_saving_ratio"][0][1] > 0


def test_another_knob_is_served_by_its_value_and_never_as_watts(
    exporter: Exporter, port: int, log: list[Event]
) -> None:
    clock = Knob.stepped("clock", 600, 1500, 300, unit="MHz")
    fed(exporter, [STARTED, replace(log[1], knob=clock, original=(4.0,)), CapSet(t_s=2.0, setting=(2.0,))])
    ((labels, value),) = scrape(port)["autocap_setting"]
    assert (labels["knob"], labels["unit"], value) == ("clock", "MHz", 900.0)
    assert "autocap_cap_watts" not in scrape(port)


def test_every_gpu_has_its_own_cap_draw_and_energy_and_what_is_unknown_is_left_out(exporter, port, log) -> None:
    found = log[1]
    gpus = (found.gpus[0], replace(found.gpus[0], index=1, uuid="GPU-other"))
    fed(exporter, [STARTED, replace(found, emulated=False, gpus=gpus, original=(260.0, 250.0))])
    assert [value for _, value in scrape(port)["autocap_cap_watts"]] == [260.0, 250.0]
    assert "autocap_power_watts" not in scrape(port)
    for t_s in (1.0, 2.0):
        readings = (Reading(t_s=t_s, power_w=100.0, requested_w=200.0), Reading(t_s=t_s, power_w=None))
        exporter.sample(Sample(t_s=t_s, readings=readings))
    seen = scrape(port)
    assert seen["autocap_cap_watts"] == [({"uuid": gpus[0].uuid, "gpu": "0", "emulated": "false"}, 200.0)]
    assert [value for _, value in seen["autocap_power_watts"]] == [100.0]
    by_uuid = {labels["uuid"]: value for labels, value in seen["autocap_energy_joules_total"]}
    assert by_uuid == {gpus[0].uuid: 100.0, "GPU-other": 0.0}


def test_before_anything_is_known_there_is_an_answer_all_the_same_and_once_closed_nobody_listens(
    exporter, port
) -> None:
    assert scrape(port) == {}
    exporter.close()
    with pytest.raises(urllib.error.URLError):
        scrape(port)


def connected(port: int, count: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(count)]


def is_held(client: socket.socket) -> bool:
    """Whether the other end has not closed it."""
    client.settimeout(0.3)
    try:
        return client.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionError:
        return False


@pytest.mark.slow
def test_a_hundred_idle_connections_hold_sixteen_descriptors_and_no_thread_and_end(port: int) -> None:
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    exporter = Exporter.start("127.0.0.1", port, longest_s=1.0)
    own = len(os.listdir("/proc/self/fd")) - descriptors
    clients = connected(port, 100)
    time.sleep(0.4)  # a moment after each so many that are accepted
    assert threading.active_count() == threads + 1
    assert len(os.listdir("/proc/self/fd")) - descriptors == own + 100 + 16
    with pytest.raises(OSError):  # noqa: PT011 - refused: closed at once
        scrape(port)
    eventually(lambda: len(os.listdir("/proc/self/fd")) - descriptors == own + 100, 5)
    assert scrape(port) == {}
    assert not any(map(is_held, clients))
    exporter.close()
    for client in clients:
        client.close()


@pytest.mark.slow
@pytest.mark.parametrize("asked", [b"GET /metrics HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_a_client_that_sends_or_reads_slowly_is_closed_in_time(port: int, log: list[Event], asked: bytes) -> None:
    exporter = Exporter.start("127.0.0.1", port, longest_s=0.5)
    found = log[1]
    long = "GPU-" * 200  # a thousand such names are more than a socket holds
    many = tuple(replace(found.gpus[0], index=i, uuid=f"{long}{i}") for i in range(1000))
    fed(exporter, [STARTED, replace(found, gpus=many, original=(250.0,) * 1000)])
    began_s = time.monotonic()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall(asked)
        client.settimeout(5)
        with suppress(ConnectionError):
            while time.monotonic() - began_s < 4:
                time.sleep(0.1)
                if not client.recv(10):
                    break
                client.send(b"x")
        assert time.monotonic() - began_s < 3
    exporter.close()


def test_closing_ends_at_once_whoever_is_connected(exporter: Exporter, port: int) -> None:
    clients = connected(port, 3)
    began_s = time.monotonic()
    exporter.close()
    assert time.monotonic() - began_s < 1
    assert not any(map(is_held, clients))
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (b"nonsense\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET /" + 20_000 * b"a", b"HTTP/1.1 431 Request Header Fields Too Large"),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"GET /metrics HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /metrics?name[]=\xff%00 HTTP/1.1\r\nAccept: \xff;q=\x00\r\n\r\n", b"HTTP/1.1 200 OK"),
    ],
)
def test_whatever_is_asked_gets_an_answer_of_http(exporter: Exporter, port: int, asked: bytes, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall(asked)
        assert client.recv(100).startswith(status + b"\r\n")


def test_without_a_descriptor_for_a_connection_it_neither_ends_nor_spins(exporter: Exporter, port: int) -> None:
    with socket.socket() as client, no_descriptors():
        client.connect(("127.0.0.1", port))
        used_s = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - used_s < 0.2
    assert scrape(port) == {}


def test_what_a_gpu_calls_itself_is_no_more_than_text(exporter: Exporter, port: int, log: list[Event]) -> None:
    found = log[1]
    hostile = replace(found.gpus[0], name="\x1b]52;c;eA==\x07\udc80\n# HELP")
    fed(exporter, [STARTED, replace(found, gpus=(hostile,))])
    assert scrape(port)["autocap_gpu_info"][0][0]["name"] == r"\x1b]52;c;eA==\x07\udc80\n# HELP"


@pytest.mark.slow
def test_a_run_is_scraped_while_it_goes_on_and_the_port_is_free_afterwards(cli: Cli, port: int) -> None:
    words = ("run", *EMULATED, "--prometheus", str(port))
    run = cli.start(*words, "--out", "run", "--", sys.executable, str(cli.job), "60")

    def draw() -> object:
        try:
            return scrape(port).get("autocap_power_watts")
        except urllib.error.URLError:  # it has not started yet
            return None

    eventually(draw)
    assert scrape(port)["autocap_power_watts"][0][0]["emulated"] == "true"
    refused = cli(*words, "--", "true")
    assert refused.returncode == 1
    why = f"the exporter cannot listen on 127.0.0.1 port {port}: Address already in use; choose another with --prom"
    assert why in refused.stderr
    assert not (cli.folder / "autocap-runs").exists(), "nothing was started"
    run.terminate()
    run.wait(120)
    with pytest.raises(urllib.error.URLError):
        scrape(port)


@pytest.mark.parametrize("text", ["0", "65536", "x", "127.0.0.1:", "-1"])
def test_what_is_no_port_is_a_usage_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *EMULATED, f"--prometheus={text}", "--", "true"]) == 2
    assert f"argument --prometheus: '{text}' is no port; give 1 to 65535, or ADDRESS:PORT" in capsys.readouterr().err
