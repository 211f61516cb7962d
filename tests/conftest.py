"""Before any test loads numpy: one thread for linear algebra, here and in every process that a test starts.

With more threads than free cores they spin while they wait for each other, and the suite takes many times as long.
"""

import os
import signal

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

# A shell that starts the suite in the background has it ignore these, and so would every process of a test.
for _signal in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, signal.default_int_handler if _signal == signal.SIGINT else signal.SIG_DFL)

from hypothesis import HealthCheck, settings  # noqa: E402 - hypothesis may load numpy

# The same examples each time, so that a test that passes here passes everywhere. On a busy machine generating them
# takes long, which says nothing of the code.
settings.register_profile(
    "autocap",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("autocap")
