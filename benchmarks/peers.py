"""DAGP compared with other libraries on the paper's data: log density of held-out outputs.

    pip install 'dagp[bench]'
    python benchmarks/peers.py --seeds 5 -o results/peers

Every model has the same training and test rows; scores are in the units of the data. Packages that
are not installed are left out. Settings are the packages' defaults or those of their tutorials; the
GPyTorch model has the number of inducing points and the kernel of DAGP. Seeds begin at 100.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from inference import write
from real import Density, Fit, joint_mixture, single_gp
from recovery import FIRST_SEED
from scipy.stats import norm

from dagp import DAGP, GP, Noise, datasets

INDUCING = 100


def multimodal(seed: int) -> tuple[np.ndarray, ...]:
    data = datasets.multimodal(noise=0.05, random_state=seed)
    fresh = datasets.multimodal(noise=0.05, random_state=seed + 10_000)
    return data.X, data.y, fresh.X, fresh.y


def noise(seed: int) -> tuple[np.ndarray, ...]:
    data = datasets.noise_separation(0.4, random_state=seed)
    fresh = datasets.noise_separation(0.4, random_state=seed + 10_000)
    return data.X, data.y, fresh.X, fresh.y


def cartpole(seed: int) -> tuple[np.ndarray, ...]:
    data = datasets.cartpole(random_state=seed)
    return data.X, data.y, data.X_test, data.y_test


def dagp(**settings: Any) -> Fit:
    def fit(X: np.ndarray, y: np.ndarray, seed: int) -> Density:
        return DAGP(**settings, random_state=seed).fit(X, y).score_samples

    return fit


def svgp(X: np.ndarray, y: np.ndarray, seed: int) -> Density:
    """GPyTorch's sparse variational GP: Adam on all parameters, batches of 256, 200 epochs."""
    import gpytorch
    import torch

    torch.manual_seed(seed)
    torch.set_default_dtype(torch.float64)
    x_centre, x_unit, y_centre, y_unit = X.mean(0), X.std(0), y.mean(), y.std()
    inputs, outputs = torch.tensor((X - x_centre) / x_unit), torch.tensor((y - y_centre) / y_unit)

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self, inducing: Any):
            q = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
            super().__init__(gpytorch.variational.VariationalStrategy(self, inducing, q))
            self.mean_module = gpytorch.means.ConstantMean()
            rbf = gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(rbf)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    rows = np.random.default_rng(seed).choice(len(X), min(INDUCING, len(X)), replace=False)
    model, likelihood = Model(inputs[rows]), gpytorch.likelihoods.GaussianLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, len(X))
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    for _ in range(200):
        for batch in torch.randperm(len(X)).split(256):
            optimiser.zero_grad()
            loss = -bound(model(inputs[batch]), outputs[batch])
            loss.backward()
            optimiser.step()
    model.eval()
    likelihood.eval()

    def density(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            found = likelihood(model(torch.tensor((X - x_centre) / x_unit)))
        std = found.variance.sqrt().numpy()
        return norm.logpdf((y - y_centre) / y_unit, found.mean.numpy(), std) - np.log(y_unit)

    return density


def ngboost(X: np.ndarray, y: np.ndarray, seed: int) -> Density:
    """Natural gradient boosting of a normal distribution."""
    from ngboost import NGBRegressor

    model = NGBRegressor(random_state=seed, verbose=False).fit(X, y)
    return lambda X, y: np.asarray(model.pred_dist(X).logpdf(y))


PEERS: dict[str, tuple[str, Fit]] = {
    "scikit-learn GP": ("sklearn", single_gp),
    "scikit-learn mixture": ("sklearn", joint_mixture),
    "GPyTorch SVGP": ("gpytorch", svgp),
    "NGBoost": ("ngboost", ngboost),
}
TASKS: dict[str, tuple[Callable[[int], tuple[np.ndarray, ...]], Fit]] = {
    "multimodal": (multimodal, dagp(n_processes=4)),
    "noise 40 %": (noise, dagp(processes=[GP(), Noise()])),
    "cart-pole": (cartpole, dagp(n_processes=2)),
}


def table(rows: list[dict[str, Any]]) -> str:
    """Models in rows, tasks in columns: log density ± standard error, seconds of a fit."""
    lines = ["# Other libraries", "", "| | " + " | ".join(TASKS) + " |", "|---" * 4 + "|"]
    for model in dict.fromkeys(row["model"] for row in rows):
        cells = []
        for task in TASKS:
            some = [row for row in rows if (row["task"], row["model"]) == (task, model)]
            scores = np.array([row["log_score"] for row in some])
            spread = f" ± {scores.std(ddof=1) / np.sqrt(len(scores)):.1g}" if len(some) > 1 else ""
            seconds = np.median([row["seconds"] for row in some])
            cells.append(f"{scores.mean():.3f}{spread} ({seconds:.0f} s)")
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    seeds = sorted({row["seed"] for row in rows})
    what = f"Mean log density of held-out outputs (seconds of a fit); seeds {seeds}."
    return "\n".join([*lines, "", what]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("-o", "--out", type=Path, default=Path("results/peers"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    rows = []
    for seed in range(FIRST_SEED, FIRST_SEED + options.seeds):
        for task, (draw, ours) in TASKS.items():
            X, y, X_test, y_test = draw(seed)
            peers = {name: fit for name, (package, fit) in PEERS.items() if find_spec(package)}
            for name, fit in {"DAGP": ours, **peers}.items():
                begin = time.perf_counter()
                density = fit(X, y, seed)
                seconds = time.perf_counter() - begin
                score = float(np.mean(density(X_test, y_test)))
                row = {"task": task, "model": name, "seed": seed, "log_score": score}
                rows.append(row | {"seconds": seconds})
                write(rows, options.out / "peers.csv")
                print(task, name, seed, f"{score:.3f}", f"{seconds:.1f} s", flush=True)
    (options.out / "peers.md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
