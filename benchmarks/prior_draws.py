"""Data sets drawn from the model's prior, for `calibration.py`.

Hyperparameters with a default prior in the library are drawn from it: the noise level of a function
(relative to the spread of the data) and the variance of the gate. The densities of the others are
defined here.

| quantity | density |
|---|---|
| inputs | uniform on the unit interval, square or cube |
| length scales, functions | log-normal, median 0.2 (two inputs: 0.35, three: 0.5), log-std 0.5 |
| variance, functions | log-normal, median 1, log-std 1 |
| noise std / spread of the data | the library's: log-normal, median 0.1, log-std 2, below one |
| length scales, gate | log-normal, median 0.3 (two inputs: 0.5, three: 0.7), log-std 0.5 |
| variance, gate | the library's: log-normal, median 4, log-std 1 |
| clutter | normal or uniform (even odds), mean normal(0, 0.5), std log-normal(1.5, 0.5) |
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, softmax

from dagp import DAGP, GP, Noise, Uniform, fixed, kernels, means
from dagp.inference.problem import DEFAULT_GATE
from dagp.model.gp import NOISE_MEDIAN, NOISE_WIDTH

Array = np.ndarray

SIZES = (250, 380)
"""Training points: few sizes, because each one is compiled."""
TEST_POINTS = 300
_JITTER = 1e-9
_FUNCTION_LENGTHS = {1: 0.2, 2: 0.35, 3: 0.5}
_GATE_LENGTHS = {1: 0.3, 2: 0.5, 3: 0.7}


class Structure(NamedTuple):
    """Numbers of processes and inputs of a data set."""

    functions: int
    clutter: bool
    inputs: int

    @property
    def processes(self) -> int:
        """Number of processes K, clutter included."""
        return self.functions + self.clutter

    def __str__(self) -> str:
        words = [f"{self.functions} GP{'s' if self.functions > 1 else ''}"]
        words += ["Noise"] if self.clutter else []
        return " + ".join(words) + (f", {self.inputs} inputs" if self.inputs > 1 else "")


STRUCTURES = (
    Structure(1, False, 1),
    Structure(1, True, 1),
    Structure(2, False, 1),
    Structure(2, True, 1),
    Structure(3, False, 1),
    Structure(3, True, 1),
    Structure(1, True, 2),
    Structure(2, False, 2),
)
SEVERAL_INPUTS = (
    Structure(1, True, 2),
    Structure(1, True, 3),
    Structure(2, False, 2),
    Structure(2, False, 3),
)
"""Structures of draws with two and three inputs alone."""


class Smooth(NamedTuple):
    """Hyperparameters of a squared exponential kernel."""

    lengthscale: Array
    variance: float

    def sample(self, X: Array, count: int, rng: np.random.Generator) -> Array:
        """Exact samples of functions at the rows of X, (count, N)."""
        squares = np.sum(((X[:, None] - X[None]) / self.lengthscale) ** 2, axis=-1)
        covariance = self.variance * (np.exp(-0.5 * squares) + _JITTER * np.eye(len(X)))
        return (np.linalg.cholesky(covariance) @ rng.standard_normal((len(X), count))).T

    def known(self) -> kernels.Kernel:
        """The kernel with its true hyperparameters fixed."""
        return fixed(kernels.SquaredExponential(self.lengthscale, self.variance))


class Clutter(NamedTuple):
    """Parameters of the clutter."""

    uniform: bool
    mean: float
    std: float

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Independent samples."""
        half = np.sqrt(3.0)
        flat = rng.uniform(-half, half, count)
        return self.mean + self.std * (flat if self.uniform else rng.standard_normal(count))

    def known(self) -> Noise | Uniform:
        """The process with its true parameters fixed."""
        half = np.sqrt(3.0) * self.std
        if self.uniform:
            return Uniform(self.mean - half, self.mean + half)
        return Noise(self.mean, std=fixed(self.std))


class Truth(NamedTuple):
    """True hyperparameters of a data set."""

    functions: tuple[Smooth, ...]
    noise_stds: Array
    clutter: Clutter | None
    gate: Smooth

    def known(self) -> DAGP:
        """A model with the true hyperparameters fixed."""
        processes: list[Any] = [
            GP(smooth.known(), mean=means.Zero(), noise_std=fixed(std))
            for smooth, std in zip(self.functions, self.noise_stds, strict=True)
        ]
        if self.clutter is not None:
            processes.append(self.clutter.known())
        return DAGP(processes=processes, gate=GP(self.gate.known()))


class Part(NamedTuple):
    """Observations with their true labels and functions."""

    X: Array
    y: Array
    label: Array
    functions: Array
    """(functions, N)"""


class Draw(NamedTuple):
    """A data set, split into training and test."""

    structure: Structure
    truth: Truth
    train: Part
    test: Part

    def default(self, known_shape: bool = False) -> DAGP:
        """Default model for this structure; the shape of clutter is found by the search."""
        processes: list[Any] = [GP() for _ in range(self.structure.functions)]
        clutter = self.truth.clutter
        if clutter is not None:
            shape = "uniform" if clutter.uniform else "normal"
            processes.append(Noise(shape=shape if known_shape else None))
        return DAGP(processes=processes)


def draw(
    seed: int,
    structure: Structure | None = None,
    size: int | None = None,
    structures: tuple[Structure, ...] = STRUCTURES,
) -> Draw:
    """Draw a data set; structures alternate with the seed."""
    rng = np.random.default_rng([seed, 2718])
    structure = structure or structures[seed % len(structures)]
    size = size or int(rng.choice(SIZES))
    X = rng.uniform(size=(size + TEST_POINTS, structure.inputs))
    functions = tuple(_smooth(_FUNCTION_LENGTHS, 1.0, structure, rng) for _ in range(structure[0]))
    values = [smooth.sample(X, 1, rng)[0] for smooth in functions]
    clutter = None
    if structure.clutter:
        clutter = Clutter(bool(rng.integers(2)), 0.5 * rng.normal(), _log_normal(1.5, 0.5, rng))
        values.append(clutter.sample(len(X), rng))
    prior = DEFAULT_GATE.kernel.variance.prior  # pyright: ignore[reportOptionalMemberAccess]
    gate = _smooth(_GATE_LENGTHS, float(prior.median), structure, rng, float(prior.std))
    weights = softmax(gate.sample(X, structure.processes, rng), axis=0)
    label = np.sum(rng.uniform(size=len(X)) > np.cumsum(weights, axis=0)[:-1], axis=0)
    y = np.choose(label, values)
    stds = _noise_stds(np.std(y), structure.functions, rng)
    y = y + np.append(stds, 0.0)[label] * rng.standard_normal(len(X))
    latent = np.stack(values[: structure.functions])
    parts = [
        Part(X[rows], y[rows], label[rows], latent[:, rows])
        for rows in (slice(size), slice(size, None))
    ]
    return Draw(structure, Truth(functions, stds, clutter, gate), *parts)


def _noise_stds(spread: float, count: int, rng: np.random.Generator) -> Array:
    """Noise levels whose ratio to the spread of the data has the library's prior.

    The prior is truncated at a ratio of one, because the spread includes the noise.
    """
    below = ndtr(-np.log(NOISE_MEDIAN) / NOISE_WIDTH)
    share = NOISE_MEDIAN * np.exp(NOISE_WIDTH * ndtri(below * rng.uniform(size=count)))
    return spread * share / np.sqrt(1 - share**2)


def _smooth(
    lengths: dict[int, float],
    variance: float,
    structure: Structure,
    rng: np.random.Generator,
    width: float = 1.0,
) -> Smooth:
    length = [_log_normal(lengths[structure.inputs], 0.5, rng) for _ in range(structure.inputs)]
    return Smooth(np.array(length), _log_normal(variance, width, rng))


def _log_normal(median: float, std: float, rng: np.random.Generator) -> float:
    return float(median * np.exp(std * rng.standard_normal()))
