"""What the user should know of a device and was not told yet."""


class Notes:
    """Sentences for the run log, each given once."""

    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._said: set[str] = set()

    def say(self, about: str, text: str) -> None:
        """Keep a sentence for the next `take`, unless one about the same was said before."""
        if about not in self._said:
            self._said.add(about)
            self._waiting.append(text)

    def take(self) -> tuple[str, ...]:
        """Those that were not given yet."""
        waiting, self._waiting = tuple(self._waiting), []
        return waiting
