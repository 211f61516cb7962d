"""What a test has started."""

import os

from autocap.job.processes import identify, tree
from tests.doubles import warm


def children() -> set[int]:
    """The PIDs of all that runs below us, but for those that wait to be forked."""
    me = identify(os.getpid())
    assert me is not None
    return {each.pid for each in tree(me)} - {os.getpid(), *warm.WAITING}
