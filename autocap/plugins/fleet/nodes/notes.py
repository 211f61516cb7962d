"""What agents note, with the same words of several nodes as one sentence."""

from collections.abc import Sequence

_TOGETHER_S = 1.0  # agents that say the same do so at nearly the same time


class Notes:
    """Sentences until they are handed out."""

    def __init__(self) -> None:
        self._ready: list[str] = []
        self._of_agents: dict[str, tuple[float, list[str]]] = {}

    def add(self, sentence: str) -> None:
        """One of our own."""
        self._ready.append(sentence)

    def said(self, name: str, sentence: str, t_s: float) -> None:
        """One of the agent of a node with that name."""
        _, names = self._of_agents.setdefault(sentence, (t_s, []))
        if name not in names:
            names.append(name)

    def take(self, living: Sequence[str], t_s: float) -> tuple[str, ...]:
        """Those that are new, once: of agents as soon as all of those living have said the same, or a moment after the
        first has. living: the names of those who may yet say it; none where nobody is heard any more."""
        for sentence, (since_s, names) in list(self._of_agents.items()):
            everywhere = bool(living) and set(living) <= set(names)
            if everywhere or not living or t_s - since_s >= _TOGETHER_S:
                del self._of_agents[sentence]
                who = "all nodes" if everywhere and len(names) > 1 else ", ".join(names)
                self._ready.append(f"{who}: {sentence}")
        taken, self._ready = tuple(self._ready), []
        return taken
