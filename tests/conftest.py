"""Before any test loads numpy."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `autocap run` does, and for the same reason
