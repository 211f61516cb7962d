"""`autocap restore`: put back what a killed run left behind."""

import argparse
from dataclasses import asdict
from pathlib import Path

from autocap.cli.lent_limits import with_leases_ended
from autocap.cli.options import observing
from autocap.job.shared_files import remove_dead
from autocap.limits.recovery import UNSETTLED, settle
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
