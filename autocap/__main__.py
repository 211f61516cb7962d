"""`python -m autocap`, also from a bare clone."""

import sys

from autocap.cli import main

if __name__ == "__main__":
    sys.exit(main())
