"""`autocap predict`."""

import argparse
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from autocap.cli.completion import offer
from autocap.cli.memory import entry_of, is_key, own_store
from autocap.cli.options import rates_of
from autocap.cli.session import be_the_user
from autocap.config import values
from autocap.errors import UsageError
from autocap.job.blas_threads import one_thread
from autocap.metrics import DEFAULT_K, Metric
from autocap.text import did_you_mean, note, put_json

if TYPE_CHECKING:
    from autocap.plugins.predict.money import Prices
    from autocap.plugins.predict.source import Measured

_METRICS = ("energy", "edp", "ed2p", "eds")


class Predict:
    """Say what to expect of a measured job on other cards, or at another cap: time, power, energy and cost per
    iteration and the best cap, each with an error that holds in nine of ten cases, or that it is not known.

    RUN_DIR is a run or a sweep with a baseline at the default limit and some lower caps; JOB one that is remembered,
    by its key as `autocap memory` lists it. Nothing is measured or set.
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.usage = "autocap predict RUN_DIR|JOB --to CARD|all [options]"
        parser.add_argument(
            "directory", metavar="RUN_DIR|JOB", type=values.path, help="where the job was measured, or its memory's key"
        )
        target = parser.add_argument(
            "--to", metavar="CARD", type=values.word, required=True, help="a model such as 'H100 SXM', or all"
        )
        offer(target, lambda: ("all",))
        parser.add_argument(
            "--cap", metavar="W|X%", type=_cap,
            help="power limit, watts or percent of the default limit (default: the default limit)",
        )  # fmt: skip
        metric = parser.add_argument(
            "--metric", "-m", metavar="NAME", type=values.word,
            help=f"by which a cap is best: {', '.join(_METRICS)} (default: the run's)",
        )  # fmt: skip
        offer(metric, lambda: _METRICS)
        parser.add_argument("--k", metavar="K", type=values.number, help=f"of eds, above 1 (default: {DEFAULT_K:g})")
        parser.add_argument(
            "--precision", metavar="BITS", type=int, choices=(16, 32),
            help="of the job's arithmetic, 16 or 32 bits: narrows times on other cards",
        )  # fmt: skip
        parser.add_argument(
            "--energy-price", metavar="MONEY", type=values.not_negative("money per kWh"),
            help="money per kWh, instead of what the run was told",
        )  # fmt: skip
        parser.add_argument(
            "--currency", metavar="NAME", type=values.currency, help="of that money: its sign or code, such as € or EUR"
        )
        parser.add_argument(
            "--hour-price", metavar="MONEY", type=values.not_negative("money per device hour"),
            help="money per hour of the card of --to",
        )  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print all of it as JSON")

    def run(self, args: argparse.Namespace) -> int:
        be_the_user(args.typed)
        with one_thread():
            from autocap.plugins.predict.cards import chosen
            from autocap.plugins.predict.document import document
            from autocap.plugins.predict.money import priced
            from autocap.plugins.predict.outlook import expect
            from autocap.plugins.predict.source import measured, remembered
            from autocap.reports import text
            from autocap.runlog.event_log import read_events
            from autocap.wire.codec import encode

        targets = chosen(args.to)
        damaged: list[str] = []
        if is_key(str(args.directory)) and not os.path.lexists(args.directory):
            found = remembered(entry_of(str(args.directory), own_store().entries()))
        else:
            events = read_events(args.directory, damaged.append)
            note(*(f"warning: {one}" for one in damaged))  # also where that leaves nothing to tell from
            found = measured(args.directory, events)
        metric, prices = _metric(args, found), _prices(args, found)
        others = [card for card in targets if card != found.card]
        outlooks = priced(
            [expect(found, card, args.cap, metric, args.precision) for card in (None, *others)], prices, found.count
        )
        if args.json:
            of = {"metric": metric.name, "k": metric.k, "emulated": found.emulated, "devices": found.count}
            of |= {"per": found.per, "currency": prices.currency}
            put_json({**of, "cards": [encode(one) for one in outlooks]})
        else:
            text.show(document(found, outlooks, metric, prices))
        return 0


def _cap(text: str) -> float:
    """`200`: watts; `70%`: a share of the default limit, 0.7. Raises ArgumentTypeError."""
    share = values.number_or_none(text.removesuffix("%"))
    least, most = (10.0, 100.0) if text.endswith("%") else (5.0, 10_000.0)
    if share is None or not least <= share <= most:
        raise argparse.ArgumentTypeError(f"{values.shown(text)} is no cap; give 5 to 10000 watts, or 10% to 100%")
    return share / 100 if text.endswith("%") else share


def _metric(args: argparse.Namespace, found: "Measured") -> Metric:
    """That which was asked for, or the run's own. Raises UsageError."""
    if args.metric is None and args.k is None:
        if found.metric.name in ("cost", "carbon") and not found.metric.hour_price:
            return Metric(name="energy")  # which is the same
        if found.metric.name not in _METRICS:
            raise UsageError(
                f"the run's metric is {found.metric.name} with a price of its card's hours, and other cards' are not "
                f"known; give --metric {', '.join(_METRICS)}"
            )
        return replace(found.metric, max_slowdown=None)
    name = args.metric or "eds"
    if name not in _METRICS:
        raise UsageError(
            f"--metric {name} cannot be predicted{did_you_mean(name, _METRICS)}; {', '.join(_METRICS)} can"
        )
    try:
        return Metric(name=name, k=args.k if args.k is not None or name != "eds" else DEFAULT_K)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _prices(args: argparse.Namespace, found: "Measured") -> "Prices":
    """Those that were given, and else the run's own. Raises UsageError."""
    from autocap.plugins.predict.money import Prices

    given = {name: getattr(args, name) for name in ("energy_price", "currency") if getattr(args, name) is not None}
    rates, here = rates_of(given, found.rates), found.metric.hour_price
    if args.hour_price is not None and args.to.lower() == "all":
        raise UsageError("--hour-price is of one card, and these are all; name it with --to")
    told = found.rates.currency
    if told is not None and told != rates.currency and (args.energy_price is None or here):
        raise UsageError(
            f"--currency {rates.currency}: the run was told its prices in {told}, and nothing is converted; drop it"
            f"{'' if here else ', or add --energy-price'}"
        )
    return Prices(energy=rates.energy_price, here=here, there=args.hour_price, currency=rates.currency)
