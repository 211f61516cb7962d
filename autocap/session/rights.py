"""Under sudo a session acts as the user who typed the command: what sudo lends comes back only where it is needed
(`privileged`): in the guardian, where devices are opened and found, and where a child is started."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from autocap.config import RunConfig
from autocap.job.invoking_user import InvokingUser, acting_as, invoking_user
from autocap.job.privileged_imports import privileged_imports
from autocap.reports import html
from autocap.session.preparing import refuse_as_root
from autocap.strategies import registry


@contextmanager
def lent_rights(config: RunConfig) -> Iterator[InvokingUser | None]:
    """Act as the user behind sudo inside; gives that user, `None` without sudo. Raises UsageError where code of theirs
    would run as root."""
    user = invoking_user()
    if user is None:
        yield None
        return
    refuse_as_root(config, user)
    registry.find(config.strategy)  # and what else lies in Python's installation, which they may not read
    html.stylesheet()
    before = {name: os.environ.get(name) for name in user.environment()}
    with acting_as(user), privileged_imports():
        os.environ.update(user.environment())
        try:
            yield user
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
