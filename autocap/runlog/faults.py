"""`internal-fault.txt`: where in autocap something went wrong that a run survived.

The run log says what and when; the file holds the tracebacks, which are for whoever is to correct it.
"""

import traceback

from autocap.errors import AutocapError, RunDirectoryError
from autocap.runlog.directory import FAULTS, RunDirectory
from autocap.text import printable

_MOST, _LONGEST = 10, 400  # tracebacks, and lines of each


class Faults:
    """The internal faults of a run so far."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._kept: list[str] = []

    def reason(self, error: Exception) -> str:
        """What a report says of an error: its own words where it is one that autocap raises on purpose; of any other
        the traceback is kept as well, and named."""
        return str(error) if isinstance(error, AutocapError) else self._kept_in(error)

    def _kept_in(self, error: Exception) -> str:
        said = f"internal fault: {type(error).__name__}: {error}"
        lines = "".join(traceback.format_exception(error)).splitlines()[-_LONGEST:]
        text = "".join(f"{printable(line)}\n" for line in lines)
        if text not in self._kept:
            if len(self._kept) == _MOST:
                return said
            self._kept.append(text)
            try:
                self._directory.put(FAULTS, "\n".join(self._kept))
            except RunDirectoryError as lost:
                return f"{said}; its traceback is lost: {lost}"
        return said if self._directory.failed else f"{said}; its traceback is in {self._directory.path / FAULTS}"
