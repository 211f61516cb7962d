"""Before any test loads numpy, and before any test starts a process."""

import os
import signal

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # threads on shared cores wait for each other
    os.environ.setdefault(_variable, "1")

# A shell that starts the suite in the background has it ignore these, and so would every process of a test.
for _signal in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, signal.default_int_handler if _signal == signal.SIGINT else signal.SIG_DFL)
