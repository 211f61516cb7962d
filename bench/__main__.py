"""`python -m bench COMMAND …`: the offline benchmarks, from a checkout."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

# Each module has main(argv) -> int.
COMMANDS = {
    "budget": "bench.budget.command",
    "cluster": "bench.cluster.command",
    "faults": "bench.faults.command",
    "fuzz": "bench.fuzz.command",
    "gate": "bench.gate",
    "machines": "bench.machines.command",
    "node": "bench.node.command",
    "overhead": "bench.overhead.command",
    "pergpu": "bench.pergpu",
    "period": "bench.period.command",
    "prices": "bench.prices.command",
    "recurring": "bench.recurring.command",
    "scenarios": "bench.scenarios.command",
    "strategies": "bench.strategies.command",
    "suite": "bench.suite",
    "tables": "bench.tables.command",
    "transfer": "bench.transfer.command",
}


def main(argv: Sequence[str]) -> int:
    """Run one benchmark; the exit status."""
    name = argv[0] if argv else ""
    if name not in COMMANDS:
        print(f"usage: python -m bench {{{','.join(COMMANDS)}}} …", file=sys.stderr)
        return 2
    run: Callable[[Sequence[str]], int] = import_module(COMMANDS[name]).main
    return run(argv[1:])


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: threads get in the way of small systems
    sys.exit(main(sys.argv[1:]))
