"""`autocap restore`: put back what a killed run left behind."""

import argparse
from dataclasses import asdict

from autocap.cli.options import observing
from autocap.guardian.recovery import UNSETTLED, settle
from autocap.guardian.state_dir import default_path
from autocap.streams import put, put_json


class Restore:
    """Put back the power limits that a killed run left behind, and say what became of each.

    A limit is put back only while the one that the run set still stands; somebody else's is left alone. Exit status 0
    when nothing remains to be done, 1 otherwise. With AUTOCAP_OBSERVE=1 it only says what it would do, and exits 1.
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print a list of {uuid, outcome, sentence}")

    def run(self, args: argparse.Namespace) -> int:
        observe = observing()
        settled = settle(observe=observe)
        if args.json:
            put_json([asdict(one) for one in settled])
        else:
            put(*(one.sentence for one in settled))
            if not settled:
                put(f"nothing to put back in {default_path()}")
        return 1 if observe or any(one.outcome in UNSETTLED for one in settled) else 0
