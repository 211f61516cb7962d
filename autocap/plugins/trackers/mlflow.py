"""MLflow: its own environment variables say where the server is (MLFLOW_TRACKING_URI), in which experiment
(MLFLOW_EXPERIMENT_NAME), and, with MLFLOW_RUN_ID, in which run."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autocap.plugins.trackers.sink import Result, Row, Setting, Sink

_RUN_ID = "MLFLOW_RUN_ID"
_MOST_TEXT, _MOST_PARAM = 5000, 500  # characters of a tag, and of a param with every store


class MlflowSink:
    """Metrics by the second of the run, settings as params, sentences as tags. A param stays what it is: where a second
    tuning of a run has another value, that is a tag.

    client: mlflow.MlflowClient. ends: it is our run, and ends with us.
    """

    def __init__(self, client: Any, run_id: str, *, ends: bool) -> None:  # without mlflow its types are not known
        self._client, self._run_id, self._ends = client, run_id, ends

    def begin(self, settings: Mapping[str, Setting]) -> None:
        from mlflow.entities import Param

        texts = {key: str(value)[:_MOST_PARAM] for key, value in settings.items()}
        known = self._client.get_run(self._run_id).data.params
        new = [Param(key, text) for key, text in texts.items() if key not in known]
        if new:
            self._client.log_batch(self._run_id, params=new)
        self._tag({key: text for key, text in texts.items() if known.get(key, text) != text})

    def log(self, row: Row) -> None:
        from mlflow.entities import Metric

        at = {"timestamp": int(row.unix_s * 1000), "step": int(row.t_s)}
        metrics = [Metric(key=key, value=value, **at) for key, value in row.numbers.items()]
        if metrics:
            self._client.log_batch(self._run_id, metrics=metrics)

    def end(self, result: Result) -> None:
        self.log(result.row)
        self._tag(result.words)
        if self._ends:
            self._client.set_terminated(self._run_id, "KILLED" if result.killed else "FINISHED")

    def _tag(self, texts: Mapping[str, Setting]) -> None:
        from mlflow.entities import RunTag

        tags = [RunTag(key, str(text)[:_MOST_TEXT]) for key, text in texts.items()]
        if tags:
            self._client.log_batch(self._run_id, tags=tags)


def start(run_dir: Path) -> Sink:
    """A run of ours, called as its run directory, or the one that MLFLOW_RUN_ID names, which is not ours to end."""
    import mlflow

    given = os.environ.get(_RUN_ID)
    if given:
        return MlflowSink(mlflow.MlflowClient(), given, ends=False)
    run = mlflow.start_run(run_name=run_dir.name, log_system_metrics=False)
    return MlflowSink(mlflow.MlflowClient(), run.info.run_id, ends=True)


def join() -> Sink | None:
    """The active run of this thread."""
    import mlflow

    run = mlflow.active_run()
    return None if run is None else MlflowSink(mlflow.MlflowClient(), run.info.run_id, ends=False)
