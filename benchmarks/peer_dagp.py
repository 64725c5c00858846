"""Training steps of DAGP under the protocol of `peer.py`; started by `against.py`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from peer import Job, serve

from dagp import GP, __version__
from dagp.core.precision import numerics
from dagp.inference.problem import Problem, Start, build
from dagp.inference.standardize import Sample, Units, padded, to_batch
from dagp.inference.train import BLOCK, begin, run_block


class Ours:
    """Blocks of steps as in `DAGP.fit`; `count` is a multiple of the block size."""

    def __init__(self, X: Any, y: Any, Z: Any, processes: int, job: Job):
        N = len(X)
        sample = Sample(X, y[:, None], np.ones(N), np.full(N, -1))
        problem = Problem(sample, Units.of(sample, False), (GP(),) * processes, None, Z)
        shares = np.random.default_rng(0).dirichlet(np.full(processes, 5.0), N)
        model = build(problem, Start("random", shares, job["lengthscale"], job["noise"]))
        self.rate = jnp.asarray(job["rate"])
        self.batch = jax.tree.map(jnp.asarray, to_batch(sample, processes))
        weights = jnp.asarray(padded(shares, len(self.batch.X)))
        self.state = begin(model, self.batch, weights, 0)[0]

    def restart(self, seed: int) -> None:
        """Does nothing: only steps are timed."""

    def steps(self, count: int) -> float:
        bound = np.nan
        for _ in range(count // BLOCK):
            self.state, bounds = run_block(self.state, self.batch, self.rate)
            bound = float(bounds.value[-1])
        return bound


def main() -> None:
    with numerics("float64"):
        serve(
            lambda X, y, Z, job: Ours(X, y, Z, 1, job),
            lambda X, y, Z, probes, job: Ours(X, y, Z, job["processes"], job),
            lambda: {"dagp": __version__, "jax": jax.__version__},
        )


if __name__ == "__main__":
    main()
