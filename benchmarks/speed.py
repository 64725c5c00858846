"""How fast it is, as JSON: import, first and second fit, milliseconds per step, predictions.

    python benchmarks/speed.py

The same as `dagp bench`. Compare ratios within one run; seconds depend on the machine and on what
else it does.
"""

from dagp.cli.bench import bench

if __name__ == "__main__":
    bench()
