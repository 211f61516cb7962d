"""What made-up curves look like: `python -m bench.strategies.curve_set --seed N --count N --families knees`."""

import argparse
import sys
from collections.abc import Sequence

from autocap.errors import UsageError
from bench.strategies.curve_set import curve_set
from bench.strategies.curve_set.traits import table


def main(argv: Sequence[str]) -> int:
    """Make a set of curves and print its table; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.strategies.curve_set", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=120, help="in all, the families in turn (default: 120)")
    parser.add_argument(
        "--families", default="made-up", help="by comma; a set's name stands for its families (default: made-up)"
    )
    args = parser.parse_args(argv)
    try:
        print("\n".join(table(curve_set(args.seed, args.count, args.families.split(",")))))
    except UsageError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
