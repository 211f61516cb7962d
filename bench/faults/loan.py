"""A helper on an emulated machine, and one small client to which it lends: what the faults with the helper between are
injected into."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from types import TracebackType

from autocap.testing.nvml import FileBoard, machine
from bench.faults.outcome import Outcome, difference
from bench.helper import people, talk
from bench.helper.served import Served
from bench.waiting import until, waited

ARRIVALS_MW = (247_123, 251_007, 240_001)  # the last is nobody's
LENT = (0, 1)
SOON_S = 15.0
_CAPS_MW = (150_000, 172_500, 201_250)


class Loan:
    """A helper and one client that sets caps; a context manager that leaves no process behind."""

    def __init__(self, folder: Path) -> None:
        made = machine("quadro-rtx-6000/alexnet", gpus=len(ARRIVALS_MW), arrivals_mw=ARRIVALS_MW)
        (folder / "machine").mkdir()
        self.board = FileBoard.create(folder / "machine" / "state.json", replace(made, job_gpus=()))
        self.served = Served(folder / "helper", folder / "machine" / "state.json")
        self._stack = ExitStack()
        self._said = folder / "said"
        self._client: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Loan":
        self._stack.enter_context(self.served)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._client is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._client.pid, signal.SIGKILL)
            self._client.wait()
        self._stack.close()

    @property
    def client(self) -> int:
        """PID, and that of its process group."""
        assert self._client is not None
        return self._client.pid

    def start(self, rng: Random, *words: str) -> None:
        """Start the client, which sets a cap every so often."""
        uuids = ",".join(self.board.read().machine.cards[gpu].uuid for gpu in LENT)
        caps = ",".join(map(str, rng.sample(_CAPS_MW, len(_CAPS_MW))))
        own = ["-I", "-S", talk.__file__, str(self.served.socket), uuids, caps, f"{rng.choice((0.3, 0.5)):g}", *words]
        with open(self._said, "ab") as out:
            self._client = subprocess.Popen(
                [people.python() or "python3", *own],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, **people.as_user(),
            )  # fmt: skip

    def reap(self) -> None:
        assert self._client is not None
        self._client.wait()

    def said(self) -> tuple[str, ...]:
        return tuple(self._said.read_text().splitlines()) if self._said.exists() else ()

    def count(self, word: str) -> int:
        return sum(line.startswith(word) for line in self.said())

    def until_set(self, times: int = 1) -> None:
        """Raises Late."""
        before = self.count("set")
        until(lambda: self.count("set") >= before + times, "a cap is set", SOON_S)

    def struck(
        self, result: Outcome, within_s: float, signum: signal.Signals, *pids: int, group: bool = False
    ) -> Outcome:
        """A signal to some processes one after the other, or to the client's whole group; and how the limits come back
        from then on, whoever sets them again."""
        since_s = self.board.now_s()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signum) if group else os.kill(pid, signum)
        changed, back_s = back(self.served, LENT, ARRIVALS_MW, since_s, within_s)
        return replace(result, changed=changed, back_s=back_s)


def back(
    served: Served, gpus: Sequence[int], found_mw: Sequence[int], since_s: float, within_s: float
) -> tuple[str | None, float | None]:
    """What is wrong with how the limits of some GPUs come back from a moment on, and the seconds that it takes, also
    where caps are set again soon; `None` where there is nothing wrong, or they were not away."""

    def times() -> list[float | None]:
        return [served.back_after_s(gpu, since_s, found_mw[gpu]) for gpu in gpus]

    waited(lambda: None not in times(), within_s + 5.0)
    found = [one for one in times() if one is not None]
    if len(found) < len(gpus):
        return difference(found_mw, served.limits_mw()) or "the limits were not put back", None
    worst_s = max(found)
    return (f"back only after {worst_s:.2f} s" if worst_s > within_s else None), worst_s or None
