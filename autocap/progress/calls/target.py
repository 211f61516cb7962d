"""Which function's calls are counted."""

from dataclasses import dataclass

from autocap.config.values import shown
from autocap.errors import AutocapError, UsageError

KIND = "calls"
_MOST = 1000  # characters


class CallsUnavailable(AutocapError):
    """The calls cannot be counted. The message says why, and what would help."""


class ProcessHidden(CallsUnavailable):
    """What one process has loaded cannot be seen; another one may be the one that computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTarget:
    """A function in a file that processes map: a library, or a program.

    library: the file's name, with or without what follows ".so", or its whole path as the job sees it. symbol: the
    function's name as the file has it (C++: mangled). by_prefix: it only begins so. what: one call, in a message.
    is_iteration: a call is an iteration, or a fixed part of one that is about as long; else how many make one is found.
    """

    library: str
    symbol: str
    by_prefix: bool = False
    what: str = ""
    is_iteration: bool = False

    def is_in(self, path: str) -> bool:
        """Whether the function is to be in the file of that path."""
        if "/" in self.library:
            return path == self.library
        name = path.rpartition("/")[2]
        return name == self.library or name.startswith(f"{self.library}.")


# Once a backward pass, on CPUs and GPUs alike; its parameters, which follow in its mangled name, change with versions.
TORCH_BACKWARD = CallTarget(
    library="libtorch_cpu.so",
    symbol="_ZN5torch8autograd6Engine7executeE",
    by_prefix=True,
    what="backward pass of PyTorch",
    is_iteration=True,
)


def call_target(progress: str) -> CallTarget:
    """The function that `calls` or `calls:LIBRARY:SYMBOL` stands for. Raises UsageError."""
    if progress == KIND:
        return TORCH_BACKWARD
    library, _, symbol = progress.removeprefix(f"{KIND}:").rpartition(":")
    if not (library and symbol) or len(progress) > _MOST or not (library + symbol).isprintable():
        raise UsageError(
            f"progress {shown(progress)} names no function; give calls:LIBRARY:SYMBOL, such as "
            "calls:libcuda.so.1:cuGraphLaunch"
        )
    return CallTarget(library=library, symbol=symbol, what=f"call of {symbol} in {library}")
