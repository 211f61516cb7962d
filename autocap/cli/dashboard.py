"""`autocap dashboard`."""

import argparse

from autocap.blas_threads import one_thread
from autocap.streams import put_json


class Dashboard:
    """Print a Grafana dashboard of what --prometheus exports, as JSON to import or provision."""

    is_session = False

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """It has no options."""

    def run(self, args: argparse.Namespace) -> int:
        with one_thread():
            from autocap.reports.prometheus.dashboard import dashboard

        put_json(dashboard())
        return 0
