"""Writes a model of format 5; run it with a version of dagp that writes that format."""

from pathlib import Path

import numpy as np

from dagp import DAGP, GP, Noise, datasets

FOLDER = Path(__file__).parent


def main() -> None:
    data = datasets.noise_separation(outliers=0.2, n=80, random_state=0)
    model = DAGP(processes=[GP(), Noise()], n_init=2, tol=1e-2, inducing=8, random_state=0)
    model.fit(data.X, data.y)
    mean, std = model.predict(data.X, return_std=True)
    shares = model.responsibilities(data.X, data.y)
    model.save(FOLDER / "known.dagp")
    np.savez(FOLDER / "known.npz", X=data.X, y=data.y, mean=mean, std=std, shares=shares)


if __name__ == "__main__":
    main()
