"""The models of `against.py` in GPyTorch: natural gradients for processes, Adam for the rest."""

import math
import sys
from typing import Any

import gpytorch
import numpy as np
import torch
from peer import Job, serve

Tensor = torch.Tensor
SAMPLES = 8


class Functions(gpytorch.models.ApproximateGP):
    """A batch of independent sparse variational GPs."""

    def __init__(self, Z: Tensor, batch: tuple[int, ...], job: Job, **start: float):
        kind = (
            gpytorch.variational.NaturalVariationalDistribution
            if job["natural"]
            else gpytorch.variational.CholeskyVariationalDistribution
        )
        batch = torch.Size(batch)
        q = kind(len(Z), batch_shape=batch, mean_init_std=start["spread"])
        places = Z.expand(*batch, *Z.shape).clone()
        super().__init__(gpytorch.variational.VariationalStrategy(self, places, q))
        self.mean_module = gpytorch.means.ZeroMean(batch_shape=batch)
        rbf = gpytorch.kernels.RBFKernel(ard_num_dims=Z.shape[1], batch_shape=batch)
        self.covar_module = gpytorch.kernels.ScaleKernel(rbf, batch_shape=batch)
        rbf.lengthscale = job["lengthscale"]
        self.covar_module.outputscale = start["variance"]

    def forward(self, x: Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Trained:
    """Base class: maximises an ELBO by natural gradients and Adam."""

    def _prepare(self, gp: Any, others: list[Tensor], job: Job, rows: int) -> None:
        moved, q = [*gp.hyperparameters(), *others], list(gp.variational_parameters())
        self.rows, self.naturals = rows, job["natural"]
        self.natural = gpytorch.optim.NGD(q, num_data=rows, lr=job["natural_rate"])
        self.adam = torch.optim.Adam(moved if self.naturals else [*q, *moved], lr=job["rate"])

    def bound(self) -> Tensor:
        raise NotImplementedError

    def steps(self, count: int) -> float:
        bound = torch.zeros(())
        for _ in range(count):
            for _ in range(self.naturals - 1):
                self._climb([self.natural])
            # The last natural-gradient step shares its gradients with Adam.
            bound = self._climb([self.natural, self.adam] if self.naturals else [self.adam])
        return float(bound.detach())

    def _climb(self, optimisers: list[Any]) -> Tensor:
        self.natural.zero_grad()
        self.adam.zero_grad()
        bound = self.bound()
        (-bound / self.rows).backward()
        for optimiser in optimisers:
            optimiser.step()
        return bound


class Plain(Trained):
    """A sparse variational GP as in GPyTorch's examples."""

    def __init__(self, X: np.ndarray, y: np.ndarray, Z: np.ndarray, job: Job):
        torch.manual_seed(0)
        self.X, self.y = torch.tensor(X), torch.tensor(y)
        self.model = Functions(torch.tensor(Z), (), job, variance=1.0, spread=1e-3)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.likelihood.noise = job["noise"] ** 2
        self.elbo = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, len(X))
        self._prepare(self.model, list(self.likelihood.parameters()), job, len(X))

    def bound(self) -> Tensor:
        return self.elbo(self.model(self.X), self.y) * self.rows


class Association(Trained):
    """Processes and a gate, with the assignments summed out of the ELBO."""

    def __init__(self, X: Any, y: Any, Z: Any, probes: Any, job: Job):
        self.X, self.y, self.Z = torch.tensor(X), torch.tensor(y), torch.tensor(Z)
        self.probes, self.job = torch.tensor(probes), job

    def restart(self, seed: int) -> None:
        """Initialise every function as a draw from its prior."""
        torch.manual_seed(seed)
        job, K = self.job, self.job["processes"]
        self.processes = Functions(self.Z, (K,), job, variance=1.0, spread=1.0)
        # Natural gradients from samples can make the precision of the gate indefinite; Adam on a
        # Cholesky factor cannot.
        by_adam = job | {"natural": False}
        self.gate = Functions(self.Z, (K,), by_adam, variance=job["gate_variance"], spread=1e-3)
        self.log_noise = torch.full((K, 1), math.log(job["noise"]), requires_grad=True)
        others = [*self.gate.parameters(), self.log_noise]
        self._prepare(self.processes, others, job, len(self.X))

    def log_joint(self) -> Tensor:
        f, alpha = self.processes(self.X), self.gate(self.X)
        variance = torch.exp(2 * self.log_noise)
        misfit = ((self.y - f.mean) ** 2 + f.variance) / variance
        density = -0.5 * (misfit + torch.log(2 * torch.pi * variance))
        return density + alpha.mean - self._drawn(alpha).logsumexp(dim=1).mean(dim=0)

    @staticmethod
    def _drawn(alpha: Any) -> Tensor:
        deviates = torch.randn(SAMPLES, *alpha.mean.shape)
        return alpha.mean + alpha.variance.clamp_min(1e-12).sqrt() * deviates

    def bound(self) -> Tensor:
        parts = (self.processes, self.gate)
        data = self.log_joint().logsumexp(dim=0).sum()
        return data - sum(part.variational_strategy.kl_divergence().sum() for part in parts)

    def look(self) -> tuple[np.ndarray, np.ndarray]:
        parts = (self.processes, self.gate)
        with torch.no_grad():
            shares = self.log_joint().softmax(dim=0)
            for part in parts:
                part.eval()
            alpha = self.gate(self.probes)
            weights = torch.stack([self._drawn(alpha).softmax(dim=1) for _ in range(200)])
            for part in parts:
                part.train()
        return shares.T.numpy(), weights.mean(dim=(0, 1)).T.numpy()


def main() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(int(sys.argv[1]))
    found = {"torch": torch.__version__, "gpytorch": gpytorch.__version__}
    serve(Plain, Association, lambda: found)


if __name__ == "__main__":
    main()
