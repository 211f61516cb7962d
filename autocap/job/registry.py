"""Whatever is chosen by its name, and where it stands: it is imported only once it is used.

What comes with autocap stands in the table below, and what is a plug-in's counts while its folder is there. Other
packages add theirs through entry points of the group `autocap.KIND`, of the same form: a module, or `module:attribute`.
Under sudo these are imported only where nobody but root could have changed them.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from autocap import metrics
from autocap.config import option
from autocap.errors import UsageError
from autocap.job.invoking_user import invoking_user
from autocap.job.trusted_code import require_trusted_module
from autocap.text import did_you_mean

_FLEET, _RECUR, _TRACKERS, _GRID, _PREDICT = (
    f"autocap.plugins.{name}" for name in ("fleet", "recur", "trackers", "grid", "predict")
)
_PLUGINS = Path(__file__).parent.parent / "plugins"
# By kind and name.
_OURS = {
    "commands": {
        "run": "autocap.cli.run:Run",
        "attach": "autocap.cli.run:Attach",
        "sweep": "autocap.cli.run:Sweep",
        "devices": "autocap.cli.devices:Devices",
        "doctor": "autocap.cli.doctor:Doctor",
        "restore": "autocap.cli.restore:Restore",
        "report": "autocap.cli.report:Report",
        "runs": "autocap.cli.report:Runs",
        "memory": "autocap.cli.memory:Memory",
        "budget": f"{_FLEET}.cli.budget:Budget",
        "recur": f"{_RECUR}.cli:Recur",
        "predict": f"{_PREDICT}.cli:Predict",
        "period": "autocap.cli.period:Period",
        "helper": "autocap.cli.helper:Helper",
        "config": "autocap.cli.config:Config",
        "completion": "autocap.cli.completion:Completion",
        "help": "autocap.cli:Help",
    },
    # The record that declares the options of a command, so that they can be settings that stay.
    "settings": {
        "run": "autocap.config:RunConfig",
        "attach": "autocap.config:RunConfig",
        "sweep": "autocap.config.sweep:SweepConfig",
        "recur": f"{_RECUR}.config:RecurConfig",
        "devices": "autocap.cli.devices:DevicesConfig",
        "report": "autocap.cli.report:ReportConfig",
        "memory": "autocap.cli.memory:MemoryConfig",
        "budget": f"{_FLEET}.config:BudgetOptions",
        "helper": "autocap.cli.helper:HelperConfig",
    },
    "devices": {
        "nvml": "autocap.devices.nvml",
        "rapl": "autocap.devices.rapl",
        "emulated": "autocap.devices.emulated",
    },
    "strategies": {
        "model": "autocap.strategies.model:Model",
        "golden": "autocap.strategies.golden:Golden",
        "linear": "autocap.strategies.linear:Linear",
        "bayesian": "autocap.strategies.bayesian:Bayesian",
        "bandit": "autocap.strategies.bandit:Bandit",
        "fixed": "autocap.strategies.fixed:Fixed",
    },
    # What the events of a run's log are, beside those of autocap.events.
    "events": {"budget": f"{_FLEET}.events", "recur": f"{_RECUR}.events"},
    # Where the job of `run` and `attach` is, beside this machine.
    "backends": {"nodes": f"{_FLEET}.nodes.backend:backend"},
    # What --nodes may begin with: how messages reach nodes, and which processes there are the job's.
    "transports": {"slurm": f"{_FLEET}.nodes.carriers.slurm:Slurm", "ray": f"{_FLEET}.nodes.carriers.ray:Ray"},
    # All devices of a kind, for whoever acts for several jobs.
    "inventories": {
        "nvml": "autocap.devices.nvml.source:NvmlInventory",
        "rapl": "autocap.devices.rapl.source:RaplInventory",
    },
    # What `autocap devices` shows of other machines, by the option that says where.
    "elsewhere": {"nodes": f"{_FLEET}.cli.device_nodes:gathered"},
    # Who may hold the limits of a device beside autocap, whatever --via says.
    "holders": {"budget": f"{_FLEET}.budget.client"},
    # Who logs a run elsewhere, and the modules that say it in the words of each tracker.
    "logs": {"trackers": f"{_TRACKERS}.process"},
    "trackers": {
        "wandb": f"{_TRACKERS}.wandb",
        "mlflow": f"{_TRACKERS}.mlflow",
        "tensorboard": f"{_TRACKERS}.tensorboard",
    },
    "prices": {"entsoe": f"{_GRID}.entsoe"},
    "carbon": {"gb": f"{_GRID}.great_britain", "electricitymaps": f"{_GRID}.electricity_maps"},
    # What stands in the report of a run besides: functions of its summary and events that yield tables and sentences.
    "sections": {"nodes": f"{_FLEET}.reports.nodes:section"},
    # What shows a record that is neither of a run nor of a sweep.
    "records": {"budget": f"{_FLEET}.reports.document:present_budget"},
}


def ours(kind: str) -> dict[str, str]:
    """What comes with autocap, by name; without those of a plug-in whose folder is not there."""
    return {name: where for name, where in _OURS.get(kind, {}).items() if _is_there(where)}


def absent(kind: str) -> set[str]:
    """The names of this kind whose plug-in's folder is not there."""
    return _OURS.get(kind, {}).keys() - ours(kind).keys()


@cache
def plugged_in(kind: str) -> dict[str, str]:
    """What other packages have added, by name."""
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    return {point.name: point.value for point in entry_points(group=f"autocap.{kind}")}


def names(kind: str) -> tuple[str, ...]:
    """Of all that there is of a kind."""
    return (*ours(kind), *plugged_in(kind))


def where(kind: str, name: str) -> str:
    """The module, or `module:attribute`, of a name. Raises KeyError where there is none, and UsageError where it may
    not be imported under sudo."""
    if name in ours(kind):
        return _OURS[kind][name]
    found = plugged_in(kind)[name]
    user = invoking_user()
    if user is not None:
        require_trusted_module(found.partition(":")[0], user)
    return found


def load(kind: str, name: str) -> Any:
    """What stands behind a name. Raises as `where`, and whatever its module does while it is imported."""
    module, _, attribute = where(kind, name).partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found


def _metrics() -> dict[str, metrics.Form]:
    found = {name: load("metrics", name) for name in plugged_in("metrics")}
    return {name: one if isinstance(one, metrics.Form) else metrics.Form(terms=one) for name, one in found.items()}


metrics.others = _metrics
option.names_of = ours


def of_plugin(kind: str, name: str, asked: str) -> Any:
    """What a plug-in of ours does for an option, asked: as it was given. Raises UsageError where that plug-in is not
    here."""
    if name in ours(kind):
        return load(kind, name)
    plugin = _OURS[kind][name].split(".")[2].partition(":")[0]
    raise UsageError(f"{asked} needs the plug-in {plugin}, which is not in this installation; install autocap whole")


def chosen(kind: str, name: str, asked: str) -> Any:
    """What a user has chosen by its name. asked: the option, as it was given. Raises UsageError where there is none, or
    where its plug-in is not here."""
    require(kind, name, asked)
    return of_plugin(kind, name, asked) if name in _OURS[kind] else load(kind, name)


def require(kind: str, name: str, asked: str) -> None:
    """Raises UsageError where nothing has that name."""
    if name not in _OURS[kind] and name not in plugged_in(kind):
        known = (*_OURS[kind], *plugged_in(kind))
        raise UsageError(f"{asked}: there is no '{name}'{did_you_mean(name, known)}; choose {', '.join(known)}")


@cache
def _is_there(where: str) -> bool:
    plugin = where.removeprefix("autocap.plugins.")
    return plugin == where or (_PLUGINS / plugin.partition(".")[0]).is_dir()
