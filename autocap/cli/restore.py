"""`autocap restore`: put back what a killed run left behind."""

import argparse
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from autocap.cli.options import observing
from autocap.errors import SetterUnavailable
from autocap.job.shared_files import remove_dead
from autocap.limits import Restored
from autocap.limits.helper.connection import end_leases_at, leases_at
from autocap.limits.helper.protocol import Ended, LeaseStatus, socket_path
from autocap.limits.recovery import UNSETTLED, Fate, Settled, settle
from autocap.limits.state_dir import default_path
from autocap.text import put, put_json


class Restore:
    """Put back the power limits that a killed run left behind, and say what became of each.

    Whatever else it had set goes back as well. A limit is put back only while the one that the run set still stands;
    somebody else's is left alone. The files of its step counter are removed. Root also ends the leases of the helper,
    and says whose they were. Exit status 0 when nothing remains to be done, 1 otherwise. With AUTOCAP_OBSERVE=1 it only
    says what it would do, and exits 1.
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--json", action="store_true", help="print a list of {uuid, outcome, sentence}; a file has no uuid"
        )

    def run(self, args: argparse.Namespace) -> int:
        observe = observing()
        settled = with_leases_ended(settle(observe=observe), observe=observe)
        files = remove_dead(observe=observe)
        if args.json:
            put_json([*map(asdict, settled), *(_as_json(path, observe) for path in files)])
        else:
            put(*(one.sentence for one in settled), *(_sentence(path, observe) for path in files))
            if not settled:
                put(f"nothing to put back in {default_path()}")
        return 1 if observe or any(one.outcome in UNSETTLED for one in settled) else 0


def _sentence(path: Path, observe: bool) -> str:
    done = "would be removed" if observe else "removed"
    return f"{path}: the step counter's file of a run that was killed, {done}"


def _as_json(path: Path, observe: bool) -> dict[str, str | None]:
    return {"uuid": None, "outcome": "pending" if observe else "removed", "sentence": _sentence(path, observe)}


log = logging.getLogger(__name__)


def with_leases_ended(settled: Sequence[Settled], *, observe: bool) -> list[Settled]:
    """What became of devices where those in use were lent by the helper, whose leases are ended; the others as they
    are, and all of them where we are not root, or no helper answers that knows how. observe: end nothing, and say what
    would be done."""
    in_use = [one.uuid for one in settled if one.outcome is Fate.IN_USE]
    if not in_use or os.geteuid() != 0:
        return list(settled)
    try:
        ended = _foreseen(in_use) if observe else _leases_ended(in_use)
    except SetterUnavailable as error:
        log.debug("no lease was ended: %s", error)
        return list(settled)
    kept = [one for one in settled if one.uuid not in {other.uuid for other in ended}]
    return kept + ended


def _foreseen(uuids: Sequence[str]) -> list[Settled]:
    leases = [lease for lease in leases_at(socket_path()) if set(uuids) & set(lease.devices)]
    return [
        Settled(uuid=uuid, outcome=Fate.PENDING, sentence=f"{uuid}: the helper's lease of {_who(lease)} would be ended")
        for lease in leases
        for uuid in lease.devices
    ]


def _leases_ended(uuids: Sequence[str]) -> list[Settled]:
    return [one for ended in end_leases_at(socket_path(), uuids) for one in _settled(ended)]


def _settled(ended: Ended) -> list[Settled]:
    who, restored = _who(ended.lease), {one.uuid: one for one in ended.restored or ()}
    if ended.restored is None:
        text = f"the helper's lease of {who} was to be ended, and is not known to be over; run `autocap restore` again"
        return [Settled(uuid=uuid, outcome=Fate.FAILED, sentence=f"{uuid}: {text}") for uuid in ended.lease.devices]
    return [_became(uuid, who, restored.get(uuid)) for uuid in ended.lease.devices]


def _became(uuid: str, who: str, limit: Restored | None) -> Settled:
    was_ended = f"{uuid}: the helper's lease of {who} was ended"
    if limit is None:
        return Settled(uuid=uuid, outcome=Fate.UNCHANGED, sentence=f"{was_ended} before it set a limit")
    if limit.failure is not None:
        text = f"{was_ended}, and its limit could not be put back: {limit.failure}; run `autocap restore` again"
        return Settled(uuid=uuid, outcome=Fate.FAILED, sentence=text)
    now = "its limit cannot be read now" if limit.final_w is None else f"its limit is {limit.final_w:g} W now"
    note = "" if limit.note is None else f" ({limit.note})"
    outcome = Fate.RESTORED if limit.note is None else Fate.FOREIGN
    return Settled(uuid=uuid, outcome=outcome, sentence=f"{was_ended}; {now}{note}")


def _who(lease: LeaseStatus) -> str:
    return f"{lease.user} (PID {lease.pid})"
