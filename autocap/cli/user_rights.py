"""`report` and `period` set nothing: under sudo they give up root for good, before a file of the user's is looked at.

What they will need of Python's installation is loaded before, as the user may not be allowed to read it.
"""

import os
from collections.abc import Callable

from autocap.errors import AutocapError
from autocap.job.invoking_user import acting_as, become, invoking_user
from autocap.job.privileged_imports import privileged_imports


def become_user(load: Callable[[], object], draw: Callable[[], object] | None = None) -> None:
    """Be the user behind sudo from now on; nothing happens without sudo.

    load: uses what of our own is read late. draw: the same for a library that reads the user's settings as well, and so
    is used with their rights. Raises AutocapError where that fails.
    """
    user = invoking_user()
    if user is None:
        return
    load()
    if draw is not None:
        os.environ.update(user.environment())
        with acting_as(user), privileged_imports():
            try:
                draw()
            except AutocapError:
                raise
            except Exception as error:  # whatever a library raises that cannot read its own files
                raise AutocapError(
                    f"no plots can be drawn with the rights of {user.name}: {type(error).__name__}: {error}; let them "
                    "read Python's installation, or leave --plots out"
                ) from error
    become(user)
