"""How pynvml reaches the functions of an emulated library: by name, with ctypes objects, getting a return code."""

import ctypes
from collections.abc import Callable
from typing import Any  # what pynvml hands over: ctypes objects of its own making, taken apart here

from autocap.clock import Clock
from autocap.testing.nvml.board import Board
from autocap.testing.nvml.machine import Fault

_SUCCESS, _UNINITIALIZED, _INVALID_ARGUMENT, _NOT_SUPPORTED, _NO_PERMISSION = 0, 1, 2, 3, 4
GENERATION = 1 << 16  # of handles: of more cards there are none
_ENDS = ("nvmlInitWithFlags", "nvmlShutdown", "nvmlErrorString")  # only a fault that names them meets them


class Failed(Exception):
    """A function of the library returns something else than success."""

    def __init__(self, code: int) -> None:
        self.code = code


class Functions:
    """Finds the method `_NAME` for the C function NAME, fails where a fault of the machine says so, and turns what it
    raises into the code that it returns."""

    def __init__(self, board: Board, clock: Clock, pause: Callable[[float], object]) -> None:
        self._board, self._clock, self._pause = board, clock, pause
        self._met: dict[Fault, int] = {}
        self._opened_s = clock.now()
        self.calls = 0  # of any function but those at the ends

    def __getattr__(self, name: str) -> Callable[..., int]:
        method = getattr(type(self), f"_{name}", None)
        if method is None or name in self._board.read().machine.missing:
            raise AttributeError(name)

        def function(*arguments: Any) -> int:
            try:
                self._fail(name, arguments)
                result = method(self, *arguments)
            except Failed as failed:
                return failed.code
            return 0 if result is None else result

        return function

    def met(self, fault: Fault) -> bool:
        """Whether a call has failed for it."""
        return self._met.get(fault, 0) > fault.after

    def _reloaded(self) -> int:
        """How often the driver was loaded again so far."""
        return sum(t_s <= self._clock.now() for t_s in self._board.read().machine.reloads)

    def _fail(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Fail where a fault says so, the driver was reloaded, or this card does not answer that."""
        self.calls += name not in _ENDS
        made = self._board.read().machine
        if name not in _ENDS and any(self._opened_s < t_s <= self._clock.now() for t_s in made.reloads):
            raise Failed(_UNINITIALIZED)
        if made.reloads and is_handle(arguments) and _address(arguments[0]) // GENERATION != self._reloaded():
            raise Failed(_INVALID_ARGUMENT)  # a handle from before
        if not made.faults and not any(card.denied for card in made.cards):
            return
        gpu = gpu_of(arguments[0]) if name.startswith("nvmlDevice") and is_handle(arguments) else None
        if gpu is not None and name in made.cards[gpu].denied:
            raise Failed(_NO_PERMISSION)
        for fault in made.faults:
            if fault.function != name and (fault.function != "*" or name in _ENDS):
                continue
            if fault.gpu not in (None, gpu) or self._clock.now() < fault.from_s:
                continue
            call = self._met[fault] = self._met.get(fault, 0) + 1
            if call > fault.after and (fault.times is None or call <= fault.after + fault.times):
                self._pause(fault.delay_s)
                if fault.code != _SUCCESS:
                    raise Failed(fault.code)


def is_handle(arguments: tuple[Any, ...]) -> bool:
    return bool(arguments) and isinstance(_as_c(arguments[0]), ctypes._Pointer)


def gpu_of(handle: Any) -> int:
    """A handle is the address 1 + its card's index, plus GENERATION for each reload of the driver before it."""
    return _address(handle) % GENERATION - 1


def _address(handle: Any) -> int:
    return ctypes.cast(_as_c(handle), ctypes.c_void_p).value or 0


def _as_c(argument: Any) -> Any:
    """What ctypes would hand to C."""
    return getattr(argument, "_as_parameter_", argument)


def number_of(value: Any) -> int:
    return int(getattr(value, "value", value))


def write_to(reference: Any, value: int) -> None:
    """Write through what `ctypes.byref` made."""
    reference._obj.value = value


def known(value: int | None) -> int:
    if value is None:
        raise Failed(_NOT_SUPPORTED)
    return value
