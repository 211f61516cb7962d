"""The pictures of a page in docs/, made anew: `python -m tests.doubles.pictures [CHROMIUM]`, of a simulated run."""

import sys
import tempfile
from pathlib import Path

from autocap.metrics import Rates
from autocap.reports.rendering import present_run, write_page
from autocap.runlog.event_log import read_events
from tests.doubles.browser import browser, found
from tests.doubles.recorded import record

DOCS = Path(__file__).parents[2] / "docs"
RATES = Rates(energy_price=0.30, currency="€", carbon_g_per_kwh=380.0)
END = "document.querySelector('figure').getBoundingClientRect().bottom + 24"  # of the first picture, pixels


def main() -> None:
    chromium = sys.argv[1] if len(sys.argv) > 1 else found()
    if chromium is None:
        sys.exit("there is no Chromium in PATH; give its path")
    with tempfile.TemporaryDirectory() as folder:
        run = record(Path(folder) / "run", rates=RATES)
        page = write_page(run, present_run(run, read_events(run)))
        with browser(chromium, Path(folder) / "profile") as shown:
            for name, width, dark in (("report.png", 1040, False), ("report-phone.png", 390, True)):
                shown.open(page, width=width, dark=dark)
                clip = {"x": 0, "y": 0, "width": width, "height": shown.ask(END)}
                (DOCS / name).write_bytes(shown.shoot(clip))


if __name__ == "__main__":
    main()
