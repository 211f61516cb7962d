"""Training jobs to tune: the networks of the papers in plain PyTorch, on synthetic ImageNet.

They know nothing of autocap: `python -m autocap.workloads` behaves as any training script does.
"""


class WorkloadError(Exception):
    """A workload cannot run as asked. The message is one sentence; exit_status is what a script would give."""

    exit_status = 1


class WorkloadUsageError(WorkloadError):
    """The command line alone shows it to be wrong."""

    exit_status = 2
