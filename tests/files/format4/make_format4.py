"""Writes a model of format 4; run it with a version of dagp that writes that format."""

from pathlib import Path

import numpy as np

from dagp import DAGP, GP, DeepGP, fixed

FOLDER = Path(__file__).parent


def main() -> None:
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-1, 1, (60, 1)), axis=0)
    y = np.where(np.arange(60) % 2, 3 + X[:, 0], np.sin(3 * X[:, 0])) + 0.1 * rng.normal(size=60)
    priors = [GP(noise_gp=GP()), GP(noise_std=fixed(0.1)), DeepGP(layers=1)]
    model = DAGP(processes=priors, n_init=1, inducing=5, tol=1e-1, random_state=0).fit(X, y)
    model.save(FOLDER / "noise.dagp", (X, y))
    mean, std = model.predict(X, return_std=True)
    shares = model.responsibilities(X, y)
    np.savez(FOLDER / "noise.npz", X=X, y=y, mean=mean, std=std, shares=shares)


if __name__ == "__main__":
    main()
