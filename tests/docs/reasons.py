"""Every reason for which a run keeps no cap, read from the code that can give it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain

from autocap import errors
from autocap.errors import AutocapError
from tests.docs.pages import ROOT
from tests.docs.strings import written

# Rooms whose faults and verdicts leave a job at the limit that was found.
_ROOMS = ("controller", "devices", "limits", "integrations", "progress", "session", "wire")
# Simulated devices are never met beneath a job; a meter of the node, and the file of steps, are had before it starts.
_APART = ("testing/simulated", "devices/node", "progress/steps")
# Of the helper, what a session meets; why it serves nobody stands in docs/helper.md.
_CLIENT = tuple(f"limits/helper/{name}" for name in ("client", "connection", "offers", "reading"))
# Calls with a reason among their arguments, beside those of the errors.
_CALLS = {"_fail": 0, "put_back": 0, "_give_up": 0, "untuned": 0, "found": 1}
# The same, with the reason as an argument of that name.
_BY_NAME = {"Failed": "why", "KeepNone": "why", "FirstBaselineEnded": "failed", "BaselineAgainEnded": "failed"}
# Where reasons are kept, in the rooms that judge a whole job rather than a reading.
_KEPT_IN = {"trouble", "_refuted", "why", "_why_not"}
_JUDGES = ("controller", "integrations", "progress", "session")
_OR_NOTHING = ("str | None", ", str]")  # of what is returned
_DOTTED = (ast.Name, ast.Attribute)
# Functions that say something else than why nothing is kept, in a sentence or nothing.
_OTHER = {
    "controller/search_factory.py notice",  # a search takes long
    "controller/budget.py overspent",  # of one trial
    "controller/holding.py why_anew",  # it is searched again
    "controller/comparison.py hindrance",  # of caps per GPU; the common one is kept
    "controller/comparison.py objection",
    "controller/search.py hopeless",  # of one trial
    "controller/doubts.py _against",
    "controller/doubts.py _multiple",
    "controller/per_gpu.py hindrance",  # the common cap is kept
    "devices/permission.py denial",  # why somebody else is asked first
    "devices/powercap.py _doubt",  # of one reading
    "progress/__init__.py notice",  # what is waited for, or taken instead
    "progress/period/learning.py notice",
    "progress/calls/counter.py remark",  # how calls are counted
    "progress/calls/iterations.py remark",
    "progress/witness.py _found",
}


@dataclass(frozen=True)
class Reason:
    """text: with a gap for what the code puts in."""

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


def _fatal() -> frozenset[str]:
    """The names of the errors that end a tuning, or keep it from beginning."""
    kinds = (errors.DeviceError, errors.GuardError, errors.StrategyError, errors.WarmStartRefused)
    declared = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, AutocapError)]
    return frozenset(one.__name__ for one in declared if issubclass(one, kinds))


@cache
def reasons() -> tuple[Reason, ...]:
    return tuple(_read())


def _read() -> Iterator[Reason]:
    fatal = _fatal()
    for room in _ROOMS:
        for path in sorted((ROOT / "autocap" / room).rglob("*.py")):
            name = str(path.relative_to(ROOT / "autocap"))
            if not name.startswith(_APART) and (not name.startswith("limits/helper/") or name.startswith(_CLIENT)):
                tree = ast.parse(path.read_text())
                found = [_passed(tree, fatal), _returned(tree, name), _kept(tree) if room in _JUDGES else ()]
                for line, text in chain(*found):
                    if len(text.split()) > 2:
                        yield Reason(place=f"{name}:{line}", text=text)


def _passed(tree: ast.Module, fatal: frozenset[str]) -> Iterator[tuple[int, str]]:
    """The texts of errors and verdicts. An error with a constructor of its own makes its text there."""
    values = {**_events(), **_values(tree)}
    kin = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and fatal & _names(node.bases)}
    own = {name: [call for call in _calls(node) if _names([call.func]) == {"__init__"}] for name, node in kin.items()}
    for call in chain.from_iterable(own.values()):
        yield from _texts(call.args[0], values)
    with_text = fatal | {name for name, made in own.items() if not made}
    for call in _calls(tree):
        called = next(iter(_names([call.func])), "")
        at = 0 if called in with_text else _CALLS.get(called)
        for argument in call.keywords:
            if argument.arg is not None and _BY_NAME.get(called) == argument.arg:
                yield from _texts(argument.value, values)
        if at is not None and len(call.args) > at and not _names([call.args[0]]) & {"BETTER"}:
            yield from _texts(call.args[at], values)


def _kept(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What is assigned to the names of reasons."""
    values = _values(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from _texts(node.value, values) if _names(targets) & _KEPT_IN else ()


def _returned(tree: ast.Module, name: str) -> Iterator[tuple[int, str]]:
    """What functions return that say why not, or nothing."""
    values = _values(tree)
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or function.returns is None:
            continue
        if ast.unparse(function.returns).endswith(_OR_NOTHING) and f"{name} {function.name}" not in _OTHER:
            for node in ast.walk(function):
                if isinstance(node, ast.Return) and node.value is not None:
                    yield from _texts(node.value, values)


@cache
def _events() -> dict[str, list[ast.expr]]:
    """The constants of `autocap.events`, as other rooms name them."""
    tree = ast.parse((ROOT / "autocap" / "events" / "run.py").read_text())
    return {f"events.{name}": value for name, value in _values(tree).items()}


def _values(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """What is assigned to each name of the module."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=True))
                for one, value in pairs:
                    found.setdefault(ast.unparse(one), []).append(value)
    return found


def _texts(node: ast.expr, values: dict[str, list[ast.expr]], depth: int = 3) -> Iterator[tuple[int, str]]:
    """The strings that an expression may be, a name by what is assigned to it."""
    match node:
        case ast.Constant() | ast.JoinedStr():
            yield node.lineno, written(node)
        case ast.IfExp(body=one, orelse=other):
            yield from _texts(one, values, depth)
            yield from _texts(other, values, depth)
        case ast.BoolOp(values=parts) | ast.Tuple(elts=parts):
            for part in parts:
                yield from _texts(part, values, depth)
        case ast.Call(func=ast.Attribute(attr="said"), args=[one]):  # of a knob
            yield from _texts(one, values, depth)
        case ast.Name() | ast.Attribute() if depth:
            for value in values.get(ast.unparse(node), ()):
                yield from _texts(value, values, depth - 1)
        case _:
            pass


def _calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _names(nodes: list[ast.expr]) -> set[str]:
    """The last word of each dotted name."""
    return {node.id if isinstance(node, ast.Name) else node.attr for node in nodes if isinstance(node, _DOTTED)}
