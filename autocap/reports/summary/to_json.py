"""The Summary as result.json has it."""

from autocap.reports.summary.record import Summary
from autocap.runlog.codec import Json, encode

# Keys that a run of the GPUs alone does not have.
_OF_NODE = frozenset({"node", "best_by_metric_gpu", "gpu", "gpu_energy_pct", "gpu_energy_stderr_pct"})


def to_json_dict(summary: Summary) -> dict[str, Json]:
    """What `result.json` holds, schema 1, with more keys where node power was counted or a cap per GPU looked for."""
    result = _fields(summary)
    if summary.versus_common is None:
        del result["versus_common"]
    result["strategy"] = {
        "name": summary.strategy.name,
        "options": {option.name: encode(option.value) for option in summary.strategy.options},
    }
    for key, found in (("best_by_metric", summary.best_by_metric), ("best_by_metric_gpu", summary.best_by_metric_gpu)):
        best = [_fields(one) for one in found]
        result[key] = {str(one.pop("metric")): one for one in best}
    return result if summary.node is not None else _without(_OF_NODE, result)


def _without(keys: frozenset[str], fields: dict[str, Json]) -> dict[str, Json]:
    """JSON objects, one in the other, without those keys."""

    def kept(value: Json) -> Json:
        if isinstance(value, dict):
            return _without(keys, value)
        return [kept(item) for item in value] if isinstance(value, list) else value

    return {key: kept(value) for key, value in fields.items() if key not in keys}


def _fields(record: object) -> dict[str, Json]:
    encoded = encode(record)
    assert isinstance(encoded, dict)
    return encoded
