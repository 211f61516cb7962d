"""In front of the real pynvml on the path: loads it, and puts the emulated library of the environment beneath it."""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_spec = PathFinder.find_spec("pynvml", [entry for entry in sys.path if Path(entry or ".").resolve() != _HERE])
if _spec is None or _spec.loader is None:
    raise ImportError("nvidia-ml-py is not installed")
_real = module_from_spec(_spec)
sys.modules["pynvml"] = _real  # the import that brought us here hands this one out
_spec.loader.exec_module(_real)

from autocap.testing.nvml.install import install  # noqa: E402  only now is the real pynvml there

install(_real)
