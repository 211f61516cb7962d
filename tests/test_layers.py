"""Who may import whom (architecture.md), read from the source; a failure names the line that breaks it."""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STDLIB = frozenset(sys.stdlib_module_names)
# The whole rule: a room imports the words, and of the rooms before it those that stand here; never back.
WORDS = (
    "text",
    "errors",
    "clock",
    "knobs",
    "records",
    "metrics",
    "config",
    "events",
)  # each of them those left of it
ROOMS = {
    "job": "",
    "wire": "job",
    "progress": "job wire",
    "measurement": "progress",
    "strategies": "job measurement",
    "devices": "job wire",
    "limits": "devices job wire",
    "runlog": "job wire",
    "controller": "measurement progress strategies",
    "reports": "job wire runlog measurement progress",
    "session": "all before",
    "sweep": "all before",
    "cli": "all before",
    "integrations": "all before",
    "workloads": "",
    "testing": "strategies progress devices job wire",
    "plugins": "all before",  # and a plug-in no other one
}
GONE = set() if (ROOT / "autocap/plugins").is_dir() else {"plugins"}  # where somebody takes them all away
# Of these, no folder imports another one of the same room.
APART = {
    "plugins": {"fleet", "grid", "predict", "recur", "trackers"},
    "devices": {"nvml", "rapl", "node", "emulated"},
    "progress": {"steps", "calls", "regex", "period"},
}
# Samples in, caps out: no clock, file, thread or process; numpy and scipy are all they need.
PURE = re.compile(
    r"(errors|knobs|records|metrics|config|events|strategies|measurement|controller|progress\.period|reports"
    r"|session\.prices\.series|plugins\.fleet\.(budget|reports|events|openadr\.events|site\.parts)"
    r"|plugins\.predict\.(rule|outlook|document)|plugins\.recur\.(policy|config|document|meter|record))\b|progress$"
)
NOT_PURE = re.compile(
    r"strategies\.(registry|bayesian)|plugins\.fleet\.budget\.(job_file|connection|client|schedule)|reports\.(live|html|prometheus|rendering|text)"
)
IMPURE_STDLIB = {"asyncio", "fcntl", "mmap", "os", "select", "shutil", "signal", "socket", "subprocess", "tempfile"}
IMPURE_STDLIB |= {"threading", "time", "urllib", "zlib", "gzip", "multiprocessing"}
# What the watchdog and the child of a run import, and so must not wait for numpy; and a service, which is to be small.
LIGHT = re.compile(
    r"(text|errors|knobs|records|metrics|config|events|clock|job(?!\.blas_threads)|wire|limits)\b|(devices|devices\.base|devices\.emulated|progress)$"
    r"|progress\.(steps|regex|values)\b|runlog(\.(directory|event_log|input_file|output_directory))?$"
)
OUTSIDE = {  # the one outside library that an edge may import, beside numpy and scipy
    "devices.nvml": "pynvml",
    "progress.steps": "torch",
    "progress.calls": "elftools",
    "strategies.bayesian": "optuna",
    "reports.live": "rich",
    "reports.text": "rich",
    "reports.prometheus": "prometheus_client",
    "plugins.trackers.wandb": "wandb",
    "plugins.trackers.mlflow": "mlflow",
    "plugins.trackers.tensorboard": "tensorboard",
    "plugins.grid.entsoe": "entsoe",
    "plugins.grid": "pandas",  # which entsoe-py takes its times from
    "plugins.fleet.nodes": "ray",
    "integrations.huggingface": "transformers",
    "integrations.result": "pandas",
    "integrations.lightning": "lightning",
    "cli": "rich",
    "cli.completion": "argcomplete",
    "workloads": "torch",
    "testing": "pytest",
    "testing.nvml": "pynvml",
}
# Who may call a device's setter, a port's own defaults among them; beside these a port that only hands on to another
# one, which is added by its name.
MAY_SET = re.compile(r"limits\.(?!helper\b)|testing\.devices$|devices\.base$")
A_PORT = re.compile(r"(port|limits)$", re.IGNORECASE)  # the name of a variable that holds one


@dataclass(frozen=True)
class Import:
    """One import statement: the module that holds it, where it stands, and the dotted module it names."""

    of: str
    place: str
    module: str

    def __str__(self) -> str:
        return f"{self.place}: imports {self.module}"


def _name(path: Path) -> str:
    """A module without `autocap.`; a package is known by its folder's name."""
    dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return dotted.removesuffix(".__init__").removeprefix("autocap.")


FOLDERS = [path for name in ("autocap", "strategies", "workloads") for path in sorted((ROOT / name).rglob("*.py"))]
SOURCES = {_name(path): path for path in FOLDERS if _name(path) not in ("", "autocap", "__main__")}


@cache
def tree_of(name: str) -> ast.Module:
    return ast.parse(SOURCES[name].read_text())


def imports(name: str) -> Iterator[Import]:
    path = SOURCES[name]
    for node in ast.walk(tree_of(name)):
        place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            yield from (Import(name, place, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{place}: a relative import; name it in full"
            for alias in node.names:
                if alias.name == "__version__":
                    continue
                inner = f"{node.module}.{alias.name}"
                module = inner if inner.removeprefix("autocap.") in SOURCES else node.module or ""
                yield Import(name, place, module)


def may(found: Import) -> bool:
    """Whether the module may contain that import."""
    room, top = found.of.partition(".")[0], found.module.partition(".")[0]
    parts = found.of.split(".")
    if found.module == "autocap":
        return False
    if top != "autocap":
        if top in STDLIB:
            return not (PURE.match(found.of) and not NOT_PURE.match(found.of) and top in IMPURE_STDLIB)
        if top in ("numpy", "scipy"):
            return not LIGHT.match(found.of) and room != "workloads"
        theirs = {OUTSIDE.get(".".join(parts[:depth])) for depth in range(1, len(parts) + 1)}
        return top in theirs or (top == "psutil" and room == "job")
    ours = found.module.removeprefix("autocap.")
    target = ours.partition(".")[0]
    if room in WORDS:
        return target in WORDS[: WORDS.index(room) + 1]
    if target != room:
        before = list(ROOMS)[: list(ROOMS).index(room)] if ROOMS[room] == "all before" else ROOMS[room].split()
        return (target in WORDS and room != "workloads") or target in before
    both = {part for name in (found.of, ours) for part in name.split(".")[1:2]}
    return len(both) < 2 or not both <= APART.get(room, set())


@pytest.mark.slow
def test_a_module_imports_only_what_its_room_may() -> None:
    broken = [f"{name} may not do this: {found}" for name in SOURCES for found in imports(name) if not may(found)]
    assert not broken, "\n".join(broken)


def test_every_module_stands_in_a_room() -> None:
    assert {name.partition(".")[0] for name in SOURCES} == {*WORDS, *ROOMS} - GONE


@pytest.mark.parametrize(
    ("words", "inside"),
    [
        (r"SetPowerManagementLimit|power_limit_uw", "devices.|testing.nvml"),
        (r"_m[wj]\b", "devices.nvml|testing.nvml"),
        (r"_u[wj]\b", "devices.powercap|devices.rapl.packages"),
        # Whoever else writes a file for a user goes through runlog.output_directory, which follows nobody's links.
        (
            r"\.write_(text|bytes)\(|\bopen\([^()]*\"[wax]b?\+?\"",
            "limits.helper.install|cli.standard_streams|workloads|testing.nvml",
        ),
    ],
)
def test_limit_setters_drivers_units_and_plain_writing_stay_where_they_belong(words: str, inside: str) -> None:
    outside = {name for name in SOURCES if not re.match(inside, name)}
    assert not {name for name in outside if re.search(words, SOURCES[name].read_text())}


def _calls(name: str) -> Iterator[tuple[str, list[ast.expr]]]:
    """The methods that a module calls, with their arguments."""
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr, node.args


@cache
def setters() -> dict[str, list[str]]:
    """The methods by which ports set something, as devices/base.py has them, with the names of their arguments."""
    found = dict[str, list[str]]()
    for node in tree_of("devices.base").body:
        if isinstance(node, ast.ClassDef) and node.name == "LimitPort":
            methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name != "close"]
            setting = [one for one in methods if isinstance(one.returns, ast.Constant) and one.returns.value is None]
            found |= {one.name: [taken.arg for taken in one.args.args[1:]] for one in setting}
    return found


def settings(tree: ast.AST) -> list[int]:
    """The lines at which a port's setter is called or handed on. `put_back` is a word of many: that of a port is known
    by its arguments, or by who has it."""
    known, found = setters(), list[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            taken, named = known.get(node.func.attr), [one.arg for one in node.keywords]
            is_any = any(isinstance(one, ast.Starred) for one in node.args)
            if taken is not None and (is_any or {*taken[: len(node.args)], *named} == {*taken}):
                found.append(node.lineno)
        elif isinstance(node, ast.Attribute) and node.attr in known:
            if node.attr != "put_back" or A_PORT.search(ast.unparse(node.value)):
                found.append(node.lineno)
        elif isinstance(node, ast.Constant) and node.value in known and node.value != "put_back":
            found.append(node.lineno)
    return sorted(set(found))


@pytest.mark.slow
def test_only_the_limits_call_a_setter() -> None:
    assert setters().keys() == {"set_limit_w", "request_w", "put_back"}
    trees = {name: tree_of(name) for name in SOURCES}
    outside = [name for name in trees if not MAY_SET.match(name)]
    broken = [f"{SOURCES[name].relative_to(ROOT)}:{line}" for name in outside for line in settings(trees[name])]
    assert not broken, "a device's limit is set beside the guardian: " + ", ".join(broken)
    assert {name for name in trees if settings(trees[name])} >= {
        "limits.asking",
        "limits.recovery",
    }  # who does is found


@pytest.mark.parametrize(
    "text",
    [
        "port.set_limit_w(uuid, 200.0)",
        "device.limits().request_w(uuid, cap_w=200.0)",
        "self._limits.put_back(uuid, None, ())",
        "anything.put_back(*found)",
        "stack.callback(self._limits.put_back, uuid, None, ())",
        "each(port.set_limit_w)",
        "getattr(port, 'set_limit_w')(uuid, 200.0)",
    ],
)
def test_a_call_of_a_setter_is_found(text: str) -> None:
    assert settings(ast.parse(text)) == [1]


@pytest.mark.parametrize(
    "text", ["held.put_back()", "stack.callback(held.put_back)", "told.put_back(why, was, unsure=no)"]
)
def test_who_else_puts_something_back_calls_no_setter(text: str) -> None:
    assert not settings(ast.parse(text))


def guards(tree: ast.AST) -> list[str]:
    """The classes that guard limits by themselves: what is entered, sets caps and beats; or what is called so, and is
    none of those whose work another process does."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
            by_name = node.name.endswith("Guardian") and "PeerGuardian" not in map(ast.unparse, node.bases)
            found += [node.name] if by_name or {"__exit__", "set_caps", "beat"} <= methods else []
    return found


def leases(tree: ast.AST) -> list[str]:
    """The classes that hold something for somebody while they are heard: called so, or with the times of one."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            begun = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
            timed = any({"restore_s", "leave_s"} <= {arg.arg for arg in one.args.kwonlyargs} for one in begun)
            found += [node.name] if node.name.endswith("Lease") or timed else []
    return found


def test_no_module_asks_for_a_protocol_at_run_time() -> None:
    """What some of a kind can do is a method with a default."""
    assert not [name for name, path in SOURCES.items() if "runtime_checkable" in path.read_text()]


@pytest.mark.slow
def test_there_is_one_guardian_and_one_of_all_whose_work_another_process_does() -> None:
    found = {f"{name}.{one}" for name in SOURCES for one in guards(tree_of(name))}
    assert found == {"limits.guardian.Guardian", "limits.guard.PeerGuardian"}


@pytest.mark.slow
def test_there_is_one_lease() -> None:
    assert [f"{name}.{one}" for name in SOURCES for one in leases(tree_of(name))] == ["limits.lease.Lease"]


@pytest.mark.parametrize(
    "text",
    [
        "class NodeGuardian: pass",
        "class Held(PeerGuardian):\n def __exit__(self): 0\n def set_caps(self): 0\n def beat(self): 0",
    ],
)
def test_another_guardian_is_found(text: str) -> None:
    assert guards(ast.parse(text))
    assert not guards(ast.parse("class NodeGuardian(PeerGuardian):\n def restore(self): 0"))


@pytest.mark.parametrize(
    "text", ["class NodeLease: pass", "class Held:\n def __init__(self, *, restore_s, leave_s): 0"]
)
def test_another_lease_is_found(text: str) -> None:
    assert leases(ast.parse(text))
    assert not leases(ast.parse("class Heartbeat:\n def __init__(self, *, restore_s): 0"))


def entries() -> list[Path]:
    """What stands in autocap/, but for folders of which only compiled files are left."""
    found = (ROOT / "autocap").iterdir()
    return [path for path in found if path.is_file() or any(one.suffix not in ("", ".pyc") for one in path.rglob("*"))]


def test_the_folder_says_what_there_is_at_a_glance() -> None:
    shown = entries()
    assert len(shown) <= 28
    assert len([path for path in shown if path.is_dir() and path.name != "plugins"]) <= 18


@pytest.mark.slow
def test_only_the_wire_accepts_connections_and_cuts_bytes_into_lines() -> None:
    outside = [name for name in SOURCES if not name.startswith("wire.")]
    accepting = {name for name in outside for method, _ in _calls(name) if method == "accept"}
    assert accepting == {"reports.prometheus.exporter"}  # it speaks HTTP, on asyncio
    ends = (b"\n", b"\r", b"\r\n")
    cutting = {
        name
        for name in outside
        for method, args in _calls(name)
        if method in ("split", "rsplit") and args and isinstance(args[0], ast.Constant) and args[0].value in ends
    }
    assert not cutting


def test_what_is_sent_to_workers_of_ray_needs_no_autocap_there() -> None:
    sent = ("wire.lines", "limits.times", "plugins.fleet.nodes.ray_actor")
    needed = {found.module for name in sent if name in SOURCES for found in imports(name)}
    assert needed <= STDLIB | {"autocap.wire.lines", "autocap.limits.times"}  # the splitter and numbers are sent along


@pytest.mark.parametrize("module", ["autocap.devices.emulated", "time", "psutil", "autocap.session.runner"])
def test_a_forbidden_import_is_found(module: str) -> None:
    assert not may(Import("controller.search", "here", module))
    assert may(Import("controller.search", "here", "numpy"))


def _listed(page: str, heading: str) -> set[str]:
    """The names in the first column of the table below a heading."""
    rows = (ROOT / page).read_text().partition(heading)[2].partition("\n|---|---|\n")[2].partition("\n\n")[0]
    return {name.strip("/") for row in rows.splitlines() for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


@pytest.mark.parametrize(
    ("page", "heading"), [("docs/how-it-works.md", "## The rooms"), ("CONTRIBUTING.md", "## The rooms")]
)
def test_the_documents_list_the_rooms_as_they_are(page: str, heading: str) -> None:
    assert _listed(page, heading) == {*WORDS, *ROOMS}
    there = {path.stem for path in entries() if path.name[0] not in "._" and path.suffix in ("", ".py")}
    assert there == {*WORDS, *ROOMS} - GONE
