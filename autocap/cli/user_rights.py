"""`report` and `period` set nothing: under sudo they give up root for good, before a file of the user's is looked at.

What they will need of Python's installation is loaded before, as the user may not be allowed to read it.
"""

from collections.abc import Callable

from autocap.job.invoking_user import become, invoking_user


def become_user(load: Callable[[], object]) -> None:
    """Be the user behind sudo from now on; nothing happens without sudo. load: uses what of our own is read late."""
    user = invoking_user()
    if user is not None:
        load()
        become(user)
