"""Write a model file, and what its model predicts.

The files beside this script were written by dagp before file format 4. They are never written
again: they show that what users have saved can still be read.
"""

from pathlib import Path

import numpy as np

from dagp import DAGP, GP, Noise, kernels

HERE = Path(__file__).parent


def main():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (40, 2))
    y = np.where(rng.random(40) < 0.2, rng.uniform(-3, 3, 40), np.sin(2 * X[:, 0]) + X[:, 1])
    kernel = kernels.SquaredExponential(lengthscale=[1.0, 2.0])
    model = DAGP(processes=[GP(kernel), Noise()], n_init=2, tol=1e-1, inducing=6, random_state=0)
    model.fit(X, y).save(HERE / "plain.dagp", (X, y))
    mean, std = model.predict(X, return_std=True)
    gate = model.predict_assignment(X)
    np.savez(HERE / "plain.npz", X=X, y=y, mean=mean, std=std, gate=gate)


if __name__ == "__main__":
    main()
