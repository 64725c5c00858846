"""Many random fits: ``python tests/fuzz.py --help``."""

import sys

from fuzzing.runner import main

if __name__ == "__main__":
    sys.exit(main())
