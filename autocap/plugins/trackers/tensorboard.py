"""TensorBoard: event files in the run directory, for `tensorboard --logdir`. The package's own writer; no torch."""

from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.text.metadata import create_summary_metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from autocap.plugins.trackers.sink import Result, Row, Setting, Sink

FOLDER = "tensorboard"
_FLUSH_S = 5


class TensorBoardSink:
    """Scalars by the second of the run, and sentences as text."""

    def __init__(self, writer: EventFileWriter) -> None:
        self._writer = writer
        self._settings: Mapping[str, Setting] = {}

    def begin(self, settings: Mapping[str, Setting]) -> None:
        self._settings = settings  # they have no moment of their own: they are written with the first row

    def log(self, row: Row) -> None:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in row.numbers.items()]
        if self._settings:
            values += [_text(tag, str(value)) for tag, value in self._settings.items()]
            self._settings = {}
        self._put(row, values)

    def end(self, result: Result) -> None:
        self.log(result.row)
        self._put(result.row, [_text(tag, text) for tag, text in result.words.items()])
        self._writer.close()

    def _put(self, row: Row, values: list[Summary.Value]) -> None:
        self._writer.add_event(Event(wall_time=row.unix_s, step=int(row.t_s), summary=Summary(value=values)))


def start(run_dir: Path) -> Sink:
    """A new log in the run directory. Raises OSError where it cannot be written."""
    folder = run_dir / FOLDER
    if folder.is_dir():  # of a run that --force has replaced
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
    return TensorBoardSink(EventFileWriter(str(folder), flush_secs=_FLUSH_S))


def _text(tag: str, text: str) -> Summary.Value:
    metadata = SummaryMetadata()
    metadata.CopyFrom(create_summary_metadata(display_name=None, description=None))
    tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode(errors="replace")], tensor_shape=TensorShapeProto())
    return Summary.Value(tag=tag, tensor=tensor, metadata=metadata)
