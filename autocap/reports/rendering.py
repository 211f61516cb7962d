"""A run or sweep in all forms that a user may ask for: text, an HTML page, pictures, `result.json`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autocap.errors import RunDirectoryError
from autocap.events import Event
from autocap.knobs import as_written
from autocap.metrics import NO_RATES
from autocap.reports import html
from autocap.reports.document import Document
from autocap.reports.figures import pictures, svg
from autocap.reports.figures.model import Picture
from autocap.reports.run_document import run_document
from autocap.reports.summary.record import DeviceSummary, Summary
from autocap.reports.summary.summarise import summarise
from autocap.runlog.columns import read_samples
from autocap.runlog.directory import REPORT
from autocap.runlog.output_directory import OutputDirectory
from autocap.wire.codec import encode
from autocap.wire.json_lines import Json

# Keys that a run of the GPUs alone does not have.
_OF_VALUES = frozenset({"carbon_price", "moving"})
_OF_NODE = frozenset({"node", "best_by_metric_gpu", "gpu", "gpu_energy_pct", "gpu_energy_stderr_pct"})
# Nor one of which this is all that is to be said.
_ABSENT = {"versus_common": None, "rates": NO_RATES, "settings": (), "remembered": None, "books": None}
OF_PROXY = frozenset({"proxy_rel_stderr"})  # nor one whose iterations were counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Presentation:
    """document: for text and page. pictures: draws up those of the page when it is called; raises RunDirectoryError
    where the samples cannot be read. result: what `result.json` holds."""

    document: Document
    pictures: Callable[[], Sequence[Picture]]
    result: Json

    @property
    def page(self) -> str:
        """The HTML page."""
        return html.page(self.document, self.pictures())


def present_run(run_dir: Path, events: Sequence[Event]) -> Presentation:
    """The report on a run, finished or not. Raises RunDirectoryError where it has no start on record."""
    summary = summarise(events)
    return Presentation(
        document=run_document(summary, events),
        pictures=lambda: pictures(summary, events, read_samples(run_dir)),
        result=to_json_dict(summary),
    )


def write_page(place: Path, report: Presentation, name: str = REPORT) -> Path:
    """Put a page into a directory; its path. Raises RunDirectoryError where it cannot be written."""
    page = report.page.encode()
    with _opened(place, name) as directory:
        return put(directory, name, page)


def write_plots(run_dir: Path, report: Presentation) -> Iterator[Path]:
    """Put each picture into a run directory as SVG; their paths, one by one. Raises RunDirectoryError where one cannot
    be written."""
    with _opened(run_dir, "*.svg") as place:
        for picture in report.pictures():
            yield put(place, f"{picture.name}.svg", svg.file(picture))


def put(place: OutputDirectory, name: str, data: bytes) -> Path:
    """Put a file there, whole or not at all; its path. Raises RunDirectoryError."""
    path = place.path / name
    try:
        place.put(name, data)
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be written: {error.strerror}; check its permissions") from error
    return path


def _opened(run_dir: Path, wanted: str) -> OutputDirectory:
    try:
        return OutputDirectory(run_dir)
    except OSError as error:
        raise RunDirectoryError(
            f"{run_dir / wanted} cannot be written: {error.strerror}; check its permissions"
        ) from error


def to_json_dict(summary: Summary) -> dict[str, Json]:
    """What `result.json` holds, schema 1, with more keys where rates were given, node power was counted, a cap per GPU
    was looked for, there are several nodes, a setting was taken from a file or variable, something is remembered of the
    job, it is known what a kWh costs or emits, or another knob than the power limit was turned."""
    result = _fields(summary)
    del result["knob"]
    for name, absent in _ABSENT.items():
        if getattr(summary, name) == absent:
            del result[name]
    if not summary.metric.moving and summary.metric.carbon_price is None:
        result["metric"] = without(_OF_VALUES, _fields(summary.metric))
    result["strategy"] = {
        "name": summary.strategy.name,
        "options": {option.name: encode(option.value) for option in summary.strategy.options},
    }
    for key, found in (("best_by_metric", summary.best_by_metric), ("best_by_metric_gpu", summary.best_by_metric_gpu)):
        best = [_fields(one) for one in found]
        result[key] = {str(one.pop("metric")): one for one in best}
    known = _only_ratios(result) if summary.is_relative else without(OF_PROXY, result)
    known = known if summary.node is not None else without(_OF_NODE, known)
    if summary.device is not None:
        known["device"] = _device(summary.device)
    if summary.knob.is_power_limit:
        return known
    written = as_written(known, summary.knob)
    assert isinstance(written, dict)
    return {**written, "knob": summary.knob.name, "unit": summary.knob.unit}


def _device(device: DeviceSummary) -> dict[str, Json]:
    """The devices; each with its node where there are several."""
    known = _fields(device)
    if not any(gpu.node for gpu in device.gpus):
        known["gpus"] = [without(frozenset({"node"}), _fields(gpu)) for gpu in device.gpus]
    return known


def _only_ratios(result: dict[str, Json]) -> dict[str, Json]:
    """Without what nobody knows where a proxy stands for the iterations: `null` in its place, and beside it how many
    times the first baseline's it is."""
    base = result["baseline"]
    assert isinstance(base, dict)
    found = {key: _relative(value, dict(base)) for key, value in result.items()}
    totals = found["totals"]
    if isinstance(totals, dict):
        totals["iterations"] = None
    return found


def _relative(value: Json, base: dict[str, Json]) -> Json:
    if isinstance(value, list):
        return [_relative(item, base) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _relative(item, _part(base, key)) for key, item in value.items()}
    for unit, ratio in (("period_s", "time_ratio"), ("energy_per_iteration_j", "energy_ratio")):
        one, first = value.get(unit), base.get(unit)
        if unit in value:
            found |= {unit: None, ratio: one / first if isinstance(one, float) and isinstance(first, float) else None}
    if "period_s" in value:
        found["iterations"] = None
    return found


def _part(base: dict[str, Json], key: str) -> dict[str, Json]:
    """What a part of a measurement is held against: the same part of the baseline."""
    part = base.get(key) if key == "gpu" else None
    return part if isinstance(part, dict) else base


def without(keys: frozenset[str], fields: dict[str, Json]) -> dict[str, Json]:
    """JSON objects, one in the other, without those keys."""

    def kept(value: Json) -> Json:
        if isinstance(value, dict):
            return without(keys, value)
        return [kept(item) for item in value] if isinstance(value, list) else value

    return {key: kept(value) for key, value in fields.items() if key not in keys}


def _fields(record: object) -> dict[str, Json]:
    encoded = encode(record)
    assert isinstance(encoded, dict)
    return encoded
