"""Speed benchmark with results as JSON: an alias of `dagp bench`, with the same options.

    python benchmarks/speed.py --suite full -o results/speed.json

Compare ratios within one run; seconds depend on the machine and its load.
"""

import sys

from dagp.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "bench")
    main()
