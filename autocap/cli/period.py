"""`autocap period`."""

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from autocap.cli.session import be_the_user
from autocap.config import values
from autocap.errors import AutocapError
from autocap.job.blas_threads import one_thread
from autocap.reports.wording.numbers import with_rel_error
from autocap.runlog.output_directory import OutputDirectory
from autocap.text import note, put, put_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from autocap.progress.period import PeriodEstimate
    from autocap.runlog.traces import Trace

_LONG = 1200  # readings; of more than that the detector averages neighbours


class Period:
    """Show what the period detector sees in a recorded trace: a CSV file with columns t_s,power_w; others are ignored.

    A run directory's samples.csv.gz is such a file.
    """

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "trace", metavar="TRACE.csv[.gz]", type=values.path, help="columns t_s,power_w: seconds and watts"
        )
        parser.add_argument(
            "--window",
            metavar="S",
            type=values.positive("seconds"),
            help="an estimate per S seconds, not one for the whole",
        )
        parser.add_argument("--plots", action="store_true", help="draw each estimate as SVG")
        parser.add_argument(
            "-o", "--out", metavar="DIR", type=values.path, default=Path(), help="where to (default: here)"
        )
        parser.add_argument("--json", action="store_true", help="print a list of estimates as JSON")

    def run(self, args: argparse.Namespace) -> int:
        be_the_user(args.typed)
        with one_thread():
            from autocap.runlog.traces import read

        trace = read(args.trace)
        parts = [trace] if args.window is None else trace.split(args.window)
        with ExitStack() as opened:
            draw = _drawer(args.out, len(parts), opened) if args.plots else None
            self._show(args, trace, parts, draw)
        return 0

    def _show(
        self,
        args: argparse.Namespace,
        trace: "Trace",
        parts: "Sequence[Trace]",
        draw: "Callable[[int, Trace, PeriodEstimate], None] | None",
    ) -> None:
        note(f"{args.trace}: {len(trace.t_s)} readings over {trace.end_s - trace.start_s:.1f} s, one every "
             f"{trace.update_s:.3g} s", *trace.notes)  # fmt: skip
        found = []
        for number, part in enumerate(parts):
            estimate = _estimate(part)
            found.append(_record(part, estimate))
            if not args.json:
                put(*lines(part, estimate))
            if draw is not None:
                draw(number, part, estimate)
        if args.json:
            put_json(found)
        if args.window is None and found[0]["verdict"] != "periodic" and len(trace.t_s) > _LONG:
            note("the trace is long, and seen as a whole it loses detail; `--window 60` looks at a minute at a time")


def _drawer(folder: Path, parts: int, opened: ExitStack) -> "Callable[[int, Trace, PeriodEstimate], None]":
    """What draws a part of a trace, by its number, into a directory, which is made if need be; `opened` closes it."""
    from autocap.reports.figures import svg
    from autocap.reports.figures.periods import period_picture

    digits = len(str(parts - 1))
    place = opened.enter_context(_place(folder))

    def draw(number: int, part: "Trace", estimate: "PeriodEstimate") -> None:
        name = f"period-{number:0{digits}}" if parts > 1 else "period"
        picture = period_picture(name, _summary(estimate), part.t_s, part.power_w, part.update_s, estimate)
        path = folder / f"{name}.svg"
        try:
            place.put(path.name, svg.file(picture))
        except OSError as error:
            raise AutocapError(f"{path} cannot be written: {error.strerror}; pass another --out") from error
        note(f"drew {path}")

    return draw


def _place(folder: Path) -> OutputDirectory:
    try:
        return OutputDirectory(folder)
    except OSError as error:
        raise AutocapError(f"no plots can be put into {folder}: {error.strerror}; pass another --out") from error


def lines(part: "Trace", estimate: "PeriodEstimate") -> tuple[str, str]:
    """What is seen in a part of a trace, and below it why."""
    several = " or ".join(f"{n}" for n in estimate.multiples)
    why = f"{estimate.reason}; it may hold {several} iterations" if several else estimate.reason
    return f"{part.start_s:.1f}–{part.end_s:.1f} s: {_summary(estimate)}", f"  {why}"


def _summary(estimate: "PeriodEstimate") -> str:
    period_s, rel_stderr = _period(estimate)
    if period_s is None:
        period = "no period"
    else:
        period = f"{with_rel_error(period_s, rel_stderr)} s, {estimate.cycles:.1f} cycles"
    verified = "verified" if estimate.verified else "not verified"
    return f"{estimate.verdict.value}, {period}, confidence {estimate.confidence:.2f}, {verified}"


def _period(estimate: "PeriodEstimate") -> tuple[float | None, float | None]:
    """Period and relative error; nothing where nothing repeats: the closest miss is no period."""
    if estimate.verdict == "aperiodic":
        return None, None
    return estimate.period_s, estimate.rel_stderr


def _estimate(part: "Trace") -> "PeriodEstimate":
    from autocap.progress.period import detect

    # What a reading averages over is not in the trace, so it counts as unknown.
    return detect(
        part.t_s,
        part.power_w,
        update_s=part.update_s,
        window_s=0.0,
        counted=part.counted,
        witnesses=part.witnesses,
    )


def _record(part: "Trace", estimate: "PeriodEstimate") -> dict[str, str | float | bool | None]:
    period_s, rel_stderr = _period(estimate)
    return {
        "start_s": part.start_s,
        "end_s": part.end_s,
        "verdict": estimate.verdict.value,
        "period_s": period_s,
        "rel_stderr": rel_stderr,
        "confidence": estimate.confidence,
        "verified": estimate.verified,
        "reason": estimate.reason,
    }
