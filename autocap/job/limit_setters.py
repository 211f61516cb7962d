"""Programs that are known to set the power limits of GPUs, as far as this machine shows them to us."""

import os

from autocap.job.processes import ancestors

_OURS = "another autocap"
# By what the kernel calls the process, which is at most 15 characters.
_KNOWN = {
    "nv-hostengine": "DCGM (nv-hostengine)",
    "lact": "LACT (lact)",
    "lactd": "LACT (lactd)",
    "nvidia-powerd": "NVIDIA's Dynamic Boost (nvidia-powerd)",
    "nvidia-smi": "nvidia-smi",
    "zeusd": "zeusd",
    "autocap": _OURS,
}


def likely_setters() -> tuple[tuple[str, int], ...]:
    """What each that runs is called, and its PID; told by the name alone, so not whether it sets anything now. Neither
    we ourselves nor what has started us (sudo)."""
    import psutil  # not above: a session seldom asks

    own = {os.getpid(), *ancestors(os.getpid())}
    found = ((process.info["name"], process.pid) for process in psutil.process_iter(["name"]))
    return tuple((_KNOWN[name], pid) for name, pid in found if name in _KNOWN and pid not in own)


def other_setters() -> tuple[tuple[str, int], ...]:
    """The same without other runs of autocap, which take no device that is ours, and its helper."""
    return tuple((name, pid) for name, pid in likely_setters() if name != _OURS)
