"""A case: one conversation."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One case, which those two make again at any time."""

    seed: int
    index: int

    def random(self) -> Random:
        return Random(f"helper {self.seed} {self.index}")

    def __str__(self) -> str:
        return f"python -m bench fuzz --seed {self.seed} --case {self.index}"
