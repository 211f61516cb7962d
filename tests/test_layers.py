"""Who may import whom (architecture.md), read from the source; a failure names the line that breaks it."""

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STDLIB = frozenset(sys.stdlib_module_names)
SCIENCE = frozenset({"numpy", "scipy"})
BASE = frozenset(
    {
        "actions",
        "arrival",
        "clock",
        "codec",
        "config",
        "devices",
        "devices.base",
        "errors",
        "events",
        "metrics",
        "notes",
        "outsider",
        "pergpuevents",
        "powersource",
        "procs",
        "records",
        "rounding",
        "samplerows",
        "summary",
        "sweep",
        "sweep.records",
    }
)
# Only these build concrete parts and join them; tests and bench do so as well.
JOINERS = frozenset(
    {
        "books",
        "cli",
        "counting",
        "cpusource",
        "gpusource",
        "inbox",
        "inside",
        "integrations",
        "opening",
        "recorder",
        "reporting",
        "session",
        "sweep.planning",
        "sweep.resting",
        "sweep.running",
        "sweep.session",
        "tuning",
        "warmstart",
        "__main__",
    }
)
PURE = frozenset(
    {
        "alias",
        "balancing",
        "bounds",
        "budget",
        "comparison",
        "confirm",
        "decision",
        "draws",
        "controller",
        "drift",
        "energy",
        "evidence",
        "gains",
        "gpuset",
        "period",
        "periodic",
        "heard",
        "holding",
        "idle",
        "kept",
        "pauses",
        "pergpu",
        "pergputelling",
        "probe",
        "batches",
        "exploration",
        "figures",
        "nodesummary",
        "nodetelling",
        "outbox",
        "pages",
        "payback",
        "probing",
        "profiles",
        "progress",
        "registry",
        "samples",
        "search",
        "sensor",
        "smoothing",
        "status",
        "strategy",
        "summarise",
        "sweep.measuring",
        "sweep.page",
        "sweep.plan",
        "sweep.statistics",
        "sweep.summary",
        "sweep.telling",
        "tally",
        "telling",
        "unzip",
        "waiting",
        "window",
    }
)
# Each edge and the one outside library it may import. A package, or a device with its own parts, is one edge.
EDGES: dict[str, frozenset[str]] = {
    "target": frozenset(),
    "attached": frozenset(),
    "holders": frozenset(),
    "cpuuse": frozenset(),
    "permission": frozenset(),
    "signals": frozenset(),
    "nodepower": frozenset(),
    "privileges": frozenset(),
    "steps": frozenset({"torch"}),
    "runlog": frozenset(),
    "guardian": frozenset(),
    "relay": frozenset(),
    "devices.emulated": frozenset({"numpy"}),
    "devices.nvml": frozenset({"pynvml"}),
    "devices.powercap": frozenset(),
    "devices.rapl": frozenset(),
    "devices.simulated": frozenset({"numpy"}),
    "reporters.terminal": frozenset({"rich"}),
    "reporters.html": frozenset(),
    "reporters.plots": frozenset({"matplotlib", "numpy"}),
    "reporters.prometheus": frozenset({"prometheus_client"}),
    "reporters.summary": frozenset({"rich"}),
    "traces": frozenset({"numpy"}),
}
# Files that belong to an edge of another name.
PARTS = {
    "devices.activity": "devices.emulated",
    "devices.jobtree": "devices.emulated",
    "devices.throttle": "devices.emulated",
    "devices.simulated_job": "devices.simulated",
    "devices.simulated_meter": "devices.simulated",
    "devices.simulated_node": "devices.simulated",
    "reporters.period_plots": "reporters.plots",
    "reporters.sweep": "reporters.summary",
    "reporters.tables": "reporters.summary",
    "reporters.footer": "reporters.terminal",
    "reporters.plain": "reporters.terminal",
    "reporters.view": "reporters.terminal",
    "reporters.wording": "reporters.terminal",
    "eventlog": "runlog",
    "stephook": "steps",
}
# Each is one module here, whatever it is made of.
PACKAGES = ("cli", "figures", "guardian", "integrations", "nodepower", "period", "relay", "stephook")
# The edges that others stand on: a child runs, and files are written, with the invoking user's rights; packages are
# capped, and the machine's energy is read, by one reader of zones.
SHARED_EDGES = {
    "devices.rapl": frozenset({"devices.powercap"}),
    "nodepower": frozenset({"devices.powercap"}),
    "reporters.prometheus": frozenset({"reporters.terminal"}),
    "target": frozenset({"privileges"}),
    "runlog": frozenset({"privileges"}),
}
OPTUNA_FILE = "bayesian"
PUBLIC = frozenset({"metrics", "records", "steps", "inside", "integrations"})  # what autocap gives its users


@dataclass(frozen=True)
class Import:
    """One import statement: where it stands and the dotted module it names."""

    file: Path
    line: int
    module: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}: imports {self.module}"


def imports(path: Path) -> list[Import]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [Import(path, node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.relative_to(ROOT)}:{node.lineno}: a relative import; name it in full"
            module = node.module or ""
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                place = ROOT / inner.replace(".", "/")
                is_module = module.startswith("autocap") and (place.is_dir() or place.with_suffix(".py").exists())
                found.append(Import(path, node.lineno, inner if is_module else module))
    return found


def sources(folder: str, *, beside: tuple[str, ...] = ()) -> list[Path]:
    root = ROOT / folder
    return [path for path in sorted(root.rglob("*.py")) if path.relative_to(root).parts[0] not in beside]


def module_name(path: Path) -> str:
    """`devices.base` for autocap/devices/base.py, `cli` for everything in autocap/cli (a package is one module)."""
    parts = path.relative_to(ROOT / "autocap").with_suffix("").parts
    if parts[:2] in (("devices", "nvml"), ("devices", "rapl")):
        return ".".join(parts[:2])
    if parts[0] in PACKAGES:
        return parts[0]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def ours(module: str) -> str | None:
    """The name, as in the tables above, of an imported module of autocap; `None` for somebody else's."""
    if module == "autocap":
        return ""
    if not module.startswith("autocap."):
        return None
    name = module.removeprefix("autocap.")
    for whole in (*PACKAGES, "devices.nvml", "devices.rapl", "strategies", "workloads"):
        if name == whole or name.startswith(whole + "."):
            return PARTS.get(whole, whole)
    return PARTS.get(name, name)


def allowed(name: str, found: Import) -> bool:
    """Whether the module `name` may contain that import."""
    inner = ours(found.module)
    top = found.module.partition(".")[0]
    if inner == "" or name in JOINERS:  # autocap itself holds its version
        return True
    if name == "":
        return top in STDLIB or inner in PUBLIC
    if name in BASE:
        return top in STDLIB or inner in BASE
    if name in PURE:
        return top in STDLIB | SCIENCE or inner in BASE | PURE
    if name == "runner":
        return top in STDLIB or inner in BASE | {"controller"}
    if name == "reporters":
        return top in STDLIB
    edge = PARTS.get(name, name)
    if edge in EDGES:
        shared = SHARED_EDGES.get(edge, frozenset())
        return top in STDLIB | EDGES[edge] or inner in BASE | PURE | {edge} | shared
    return False


AUTOCAP = sources("autocap", beside=("strategies", "workloads"))


@pytest.mark.parametrize("path", AUTOCAP, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_module_imports_only_what_its_layer_may(path: Path) -> None:
    name = module_name(path)
    broken = [str(found) for found in imports(path) if not allowed(name, found)]
    assert not broken, "\n".join([f"{name or '__init__'} may not do this:", *broken])


def test_every_module_stands_in_one_layer() -> None:
    known = BASE | PURE | set(EDGES) | set(PARTS) | JOINERS | {"", "runner", "reporters"}
    unknown = {module_name(path) for path in AUTOCAP} - known
    assert not unknown, f"give these a layer in {Path(__file__).name}: {sorted(unknown)}"


@pytest.mark.parametrize("path", sources("strategies"), ids=lambda path: path.name)
def test_strategies_know_no_device_and_no_time(path: Path) -> None:
    permitted = {"strategy", "records", "errors", "metrics", "evidence", "smoothing", "strategies"}
    outside = (STDLIB - {"time"}) | SCIENCE | ({"optuna"} if path.stem == OPTUNA_FILE else frozenset())
    broken = [
        str(found)
        for found in imports(path)
        if found.module.partition(".")[0] not in outside and ours(found.module) not in permitted
    ]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("path", sources("workloads"), ids=lambda path: str(path.relative_to(ROOT)))
def test_workloads_import_torch_and_nothing_of_ours(path: Path) -> None:
    broken = [
        str(found)
        for found in imports(path)
        if found.module.partition(".")[0] not in STDLIB | {"torch"} and ours(found.module) != "workloads"
    ]
    assert not broken, "\n".join(broken)


def test_only_devices_know_a_limit_setter() -> None:
    names = ("SetPowerManagementLimit", "power_limit_uw")
    outside = [path for path in AUTOCAP if "devices" not in path.parts]
    broken = [f"{path.relative_to(ROOT)}: {name}" for path in outside for name in names if name in path.read_text()]
    assert not broken, "\n".join(broken)


def test_only_the_nvml_device_knows_milliwatts() -> None:
    outside = [path for path in AUTOCAP if "nvml" not in path.parts]
    broken = [str(path.relative_to(ROOT)) for path in outside if re.search(r"_m[wj]\b", path.read_text())]
    assert not broken, "\n".join(broken)


def test_only_zones_and_their_limits_know_microwatts() -> None:
    inside = {"powercap.py", "longterm.py"}
    broken = [str(path.relative_to(ROOT)) for path in AUTOCAP if re.search(r"_u[wj]\b", path.read_text())]
    assert {Path(path).name for path in broken} == inside, broken


def test_a_forbidden_import_is_found() -> None:
    assert not allowed("controller", Import(ROOT / "autocap/controller.py", 1, "autocap.devices.emulated"))
    assert not allowed("controller", Import(ROOT / "autocap/controller.py", 1, "psutil"))
    assert not allowed("devices.emulated", Import(ROOT / "autocap/devices/emulated.py", 1, "autocap.target"))
    assert allowed("controller", Import(ROOT / "autocap/controller.py", 1, "numpy"))
