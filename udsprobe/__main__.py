"""`python -m udsprobe`."""

import sys

from udsprobe.cli import main

if __name__ == "__main__":
    sys.exit(main())
