"""Write model files and a checkpoint, and what their models predict.

The files beside this script were written by dagp 0.1.0 (file format 1), with

    python make_format1.py FOLDER

They are never written again: they show that what users have saved can still be read.
"""

import sys
from pathlib import Path

import numpy as np

from dagp import (
    DAGP,
    GP,
    Concrete,
    DeepGP,
    Noise,
    Uniform,
    datasets,
    fixed,
    kernels,
    means,
    parameter,
)

CASES = {
    "plain": (
        DAGP(2, n_init=2, tol=1e-2, max_iter=100, inducing=12, random_state=0),
        "crossings",
    ),
    "heteroscedastic": (
        DAGP(
            processes=[GP(noise_gp=GP()), Noise()],
            n_init=1,
            tol=1e-2,
            max_iter=100,
            inducing=10,
            random_state=0,
        ),
        "noise",
    ),
    "deep": (
        DAGP(
            processes=[DeepGP(layers=2), Noise()],
            gate=DeepGP(layers=2),
            n_init=1,
            tol=1e-1,
            max_iter=50,
            inducing=10,
            random_state=0,
        ),
        "noise",
    ),
    "clutter": (
        DAGP(
            processes=[
                GP(
                    kernels.Matern52(parameter(0.5)) + 0.5 * kernels.Periodic(period=fixed(2.0)),
                    mean=means.Linear(),
                ),
                Uniform(),
                Noise(shape="normal"),
            ],
            gate="constant",
            n_init=2,
            tol=1e-2,
            max_iter=100,
            inducing=10,
            random_state=0,
        ),
        "noise",
    ),
    "concrete": (
        DAGP(2, inference=Concrete(), n_init=1, max_iter=50, inducing=8, random_state=0),
        "crossings",
    ),
}


def rows(kind: str) -> tuple[np.ndarray, np.ndarray]:
    if kind == "noise":
        data = datasets.noise_separation(outliers=0.3, n=80, random_state=0)
    else:
        data = datasets.multimodal(n=80, random_state=0)
    return data.X, data.y


def answers(model: DAGP, X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    mixture = model.predict_mixture(X)
    return {
        "X": X,
        "y": y,
        "weights": mixture.weights,
        "means": mixture.means,
        "variances": mixture.variances,
        "gate": model.predict_assignment(X),
        "responsibilities": model.responsibilities(X, y),
        "shares": np.array([process.weight_ for process in model.processes_]),
        "noise_std": np.stack([process.noise_std(X) for process in model.processes_]),
    }


class InterruptedFitError(Exception):
    pass


def main(folder: Path) -> None:
    for name, (model, kind) in CASES.items():
        X, y = rows(kind)
        model.fit(X, y)
        if name == "plain":
            model.partial_fit(X[::2], y[::2])  # with the moments of an optimiser
        model.save(folder / f"{name}.dagp", data=(X, y))
        np.savez_compressed(folder / f"{name}.npz", **answers(model, X, y))
        print(name, (folder / f"{name}.dagp").stat().st_size)
    X, y = rows("crossings")
    seen = []

    def interrupt(progress) -> None:
        seen.append(progress)
        if progress.phase == "train" and progress.step >= 50:
            raise InterruptedFitError

    path = folder / "checkpoint.dagp"
    settings = {"n_init": 2, "tol": 1e-2, "max_iter": 100, "inducing": 12, "random_state": 0}
    fit = DAGP(2, **settings, checkpoint=path, checkpoint_every=0.0, callbacks=[interrupt])
    try:
        fit.fit(X, y)
    except InterruptedFitError:
        print("checkpoint", path.stat().st_size, seen[-1])
    whole = DAGP(2, **settings).fit(X, y)
    np.savez_compressed(
        folder / "checkpoint.npz",
        steps=whole.n_iter_,
        bound=whole.lower_bound_,
        **answers(whole, X, y),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
