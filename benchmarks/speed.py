"""How fast it is, as JSON: import, first and second fit, milliseconds per step, predictions.

    python benchmarks/speed.py

Compare ratios within one run; seconds depend on the machine and on what else it does.
"""

import json
import subprocess
import sys
import time

import jax
import numpy as np

from dagp import DAGP, datasets


def seconds(job) -> float:
    begin = time.perf_counter()
    job()
    return time.perf_counter() - begin


def main() -> None:
    data = datasets.multimodal(random_state=0)
    model = DAGP(4, random_state=0)
    X = np.random.default_rng(0).uniform(-6, 6, (100_000, 1))
    figures = {
        "import_s": seconds(
            lambda: subprocess.run([sys.executable, "-c", "import dagp"], check=True)
        ),
        "first_fit_s": seconds(lambda: model.fit(data.X, data.y)),
        "second_fit_s": seconds(lambda: model.fit(data.X, data.y)),
        "fit_steps": sum(row["steps"] for row in model.restarts_),
    }
    model.predict(X[:10])
    figures["predict_100000_s"] = min(seconds(lambda: model.predict(X)) for _ in range(3))
    figures["versions"] = {"jax": jax.__version__, "numpy": np.__version__}
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
