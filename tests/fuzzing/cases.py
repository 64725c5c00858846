"""Cases: a few choices and a seed, from which data and a model follow exactly."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dagp import DAGP, GP, Concrete, DeepGP, Noise, Uniform, kernels, means
from dagp.model.process import ProcessPrior

__all__ = ["FAMILY", "SMALL", "WIDE", "Case", "Data", "chosen", "drawn", "make_data", "make_model"]

Menu = dict[str, Sequence[Any]]
"""What there is to choose from; what stands there twice is chosen twice as often."""
Pick = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class Case:
    """One fit. All of it is JSON, so that a case can be printed, sent and repeated."""

    seed: int
    rows: int
    columns: int
    outputs: int
    inputs: str
    targets: str
    x_scale: float
    y_scale: float
    x_offset: float
    """In units of the scale."""
    y_offset: float
    repeats: float
    """Share of the rows that are copies of others."""
    weights: str
    labels: str
    processes: tuple[str, ...]
    """Names from `PROCESSES`; none at all means that their number is to be found."""
    gate: str
    inference: str
    batch: int | None
    way: str
    """``"fit"``, ``"stream"`` (in two parts), ``"warm"`` (twice), ``"gaps"`` (with NaN)."""
    inducing: str
    n_init: int
    max_iter: int
    posterior: str
    dtype: str
    standardize: bool
    flat: bool
    """Whether a single output comes as (N,) rather than (N, 1)."""

    @staticmethod
    def read(choices: dict[str, Any]) -> "Case":
        """The case that `dataclasses.asdict` was asked about."""
        return Case(**{**choices, "processes": tuple(choices["processes"])})

    def written(self) -> dict[str, Any]:
        """The case as JSON takes it."""
        return dataclasses.asdict(self)


KERNELS: dict[str, Callable[[int], kernels.Kernel]] = {
    "SquaredExponential": lambda columns: kernels.SquaredExponential(),
    "Matern12": lambda columns: kernels.Matern12(),
    "Matern32": lambda columns: kernels.Matern32(),
    "Matern52": lambda columns: kernels.Matern52(),
    "RationalQuadratic": lambda columns: kernels.RationalQuadratic(),
    "Periodic": lambda columns: kernels.Periodic(),
    "Linear": lambda columns: kernels.Linear(),
    "Constant": lambda columns: kernels.Constant(),
    "White": lambda columns: kernels.White(),
    "Sum": lambda columns: kernels.SquaredExponential() + kernels.Linear(),
    "Product": lambda columns: kernels.Periodic() * kernels.Matern32(),
    "active": lambda columns: kernels.Matern52(active=[columns - 1]),
}

PROCESSES: dict[str, Callable[[int], ProcessPrior]] = {
    **{name: lambda columns, k=kernel: GP(k(columns)) for name, kernel in KERNELS.items()},
    "GP": lambda columns: GP(),
    "mean": lambda columns: GP(mean=means.Linear(), noise_std=0.1),
    "uneven": lambda columns: GP(noise_gp=GP()),
    "Student": lambda columns: GP(noise="student"),
    "Laplace": lambda columns: GP(noise="laplace"),
    "rough uneven": lambda columns: GP(kernels.Matern12(), noise_gp=GP(kernels.Matern32())),
    "DeepGP": lambda columns: DeepGP(),
    "narrow DeepGP": lambda columns: DeepGP(layers=3, width=1),
    "uneven DeepGP": lambda columns: DeepGP(noise_gp=GP()),
    "Noise": lambda columns: Noise(),
    "normal Noise": lambda columns: Noise(shape="normal"),
    "even Noise": lambda columns: Noise(shape="uniform"),
    "Uniform": lambda columns: Uniform(),
}

GATES: dict[str, Callable[[int], GP | DeepGP | str | None]] = {
    "default": lambda columns: None,
    "constant": lambda columns: "constant",
    "GP": lambda columns: GP(kernels.SquaredExponential()),
    "Matern12": lambda columns: GP(kernels.Matern12()),
    "Linear": lambda columns: GP(kernels.Linear()),
    "DeepGP": lambda columns: DeepGP(),
}

INFERENCE: dict[str, str | Concrete] = {
    "collapsed": "collapsed",
    "concrete": "concrete",
    "paper": Concrete(entropy=False),
}

X_KINDS = (
    "uniform", "uniform", "grid", "clustered", "ties", "integers", "heavy", "gap", "wild",
    "constant", "near-constant", "line",
)  # fmt: skip
Y_KINDS = (
    "curves", "curves", "exact", "noise", "heavy", "constant", "near-constant", "integers",
    "steps", "gap", "wild",
)  # fmt: skip
SCALES = (1.0, 1.0, 1.0, 1e-12, 1e-6, 1e-3, 1e3, 1e6, 1e12)
OFFSETS = (0.0, 0.0, 0.0, 1.0, -30.0, 1e6)

WIDE: Menu = {
    "rows": (1, 2, 3, 5, 8, 13, 20, 33, 50, 64, 65, 90, 120, 200, 300, 500),
    "columns": (1, 1, 1, 2, 3, 4, 6),
    "outputs": (1, 1, 1, 2, 3),
    "inputs": X_KINDS,
    "targets": Y_KINDS,
    "x_scale": SCALES,
    "y_scale": SCALES,
    "x_offset": OFFSETS,
    "y_offset": OFFSETS,
    "repeats": (0.0, 0.0, 0.3, 0.9),
    "weights": ("none", "none", "none", "counts", "fractions", "huge", "wild", "few"),
    "labels": ("none", "none", "none", "few", "all", "one"),
    "count": (0, 1, 2, 2, 3, 4, 5),
    "process": (*PROCESSES, "GP", "GP", "GP", "GP", "Noise", "Noise", "Uniform"),
    "gate": ("default", "default", *GATES),
    "inference": ("collapsed", "collapsed", "collapsed", *INFERENCE),
    "batch": (None, None, None, 1, 16, 100, 1000),
    "way": ("fit", "fit", "fit", "fit", "stream", "warm", "gaps"),
    "inducing": ("default", "default", "few", "one", "positions"),
    "n_init": (1, 2, 3),
    "max_iter": (1, 50, 200),
    "posterior": ("best", "best", "averaged"),
    "dtype": ("float64", "float64", "float64", "float32"),
    "standardize": (True, True, True, True, False),
    "flat": (True, False),
}

SMALL: Menu = {
    **WIDE,
    "rows": (24,),
    "columns": (1,),
    "outputs": (1,),
    "labels": ("none", "few"),
    "count": (2,),
    "process": ("GP",),
    "gate": ("default",),
    "inference": ("collapsed",),
    "batch": (None,),
    "way": ("fit", "gaps"),
    "inducing": ("positions",),
    "n_init": (1,),
    "max_iter": (1,),
    "dtype": ("float64",),
    "standardize": (True,),
}
"""Every kind of data, and one model: a new shape would have to be compiled."""


FAMILY = 8
"""Consecutive seeds whose models and sizes are the same: most of the time goes into compiling."""
SHARED = (
    "rows", "columns", "outputs", "gate", "inference", "batch", "way", "inducing", "posterior",
    "dtype",
)  # fmt: skip
"""What a family has in common beside its processes."""


def chosen(menu: Menu, shared: Pick, own: Pick, seed: int) -> Case:
    """The case for which the picks answer every question of the menu."""
    names = tuple(shared(menu["process"]) for _ in range(shared(menu["count"])))
    rest = [name for name in menu if name not in ("count", "process")]
    answers = {name: (shared if name in SHARED else own)(menu[name]) for name in rest}
    return Case(seed=seed, processes=names, **answers)


def drawn(menu: Menu, seed: int) -> Case:
    """The case of a seed."""

    def pick(*seeds: int) -> Pick:
        rng = np.random.default_rng(seeds)
        return lambda options: options[rng.integers(len(options))]

    return chosen(menu, pick(0, seed // FAMILY), pick(1, seed), seed)


@dataclass(frozen=True)
class Data:
    """What `fit` is given."""

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None
    labels: np.ndarray | None

    def part(self, rows: slice) -> "Data":
        """Some of the rows."""
        return Data(
            *(None if a is None else a[rows] for a in (self.X, self.y, self.weight, self.labels))
        )


def _inputs(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Inputs of order one, or oddly spread."""
    X = rng.uniform(-1, 1, shape)
    if kind == "grid":
        return np.tile(np.linspace(-1, 1, shape[0])[:, None], shape[1])
    if kind == "clustered":
        centres = rng.uniform(-1, 1, (min(4, shape[0]), shape[1]))
        return centres[rng.integers(len(centres), size=shape[0])] + 1e-5 * X
    if kind in ("ties", "integers"):
        return np.rint((1 if kind == "ties" else 20) * X)
    if kind == "heavy":
        return rng.standard_cauchy(shape)
    if kind == "gap":
        return X + 1e6 * rng.integers(2, size=(shape[0], 1))
    return _odd(kind, X, rng)


def _odd(kind: str, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Kinds that inputs and outputs have in common."""
    some = (rng.integers(len(values)), rng.integers(values.shape[1]))
    if kind == "wild":
        values[some] = 1e9
    if kind in ("constant", "near-constant"):
        values[:, 0] = 1.0
        values[some] += 1e-9 * (kind == "near-constant")
    if kind == "line":
        values[:] = values[:, :1] * np.arange(1, values.shape[1] + 1)
    return values


def _targets(kind: str, X: np.ndarray, case: Case, rng: np.random.Generator) -> np.ndarray:
    """Outputs of order one, or oddly spread."""
    shape = (len(X), case.outputs)
    if kind == "heavy":
        return rng.standard_cauchy(shape)
    if kind == "noise":
        return rng.standard_normal(shape)
    curves = max(len(case.processes), 2)
    member = rng.integers(curves, size=len(X))
    place = np.clip(X, -1e3, 1e3).sum(axis=1)
    level = np.sin(rng.uniform(1, 3, curves)[member] * place) + 2.0 * member
    slope = rng.uniform(-2, 2, case.outputs)
    y = slope * level[:, None]
    if kind == "curves":
        return y + 0.1 * rng.standard_normal(shape)
    if kind in ("integers", "steps"):
        return np.rint(y) if kind == "integers" else (y > y.mean()).astype(float)
    return y + 1e6 * member[:, None] if kind == "gap" else _odd(kind, y, rng)


def _weights(kind: str, rows: int, rng: np.random.Generator) -> np.ndarray | None:
    kinds = {
        "counts": lambda: rng.integers(0, 4, rows),
        "fractions": lambda: rng.uniform(0, 1, rows),
        "huge": lambda: np.full(rows, 1e6),
        "wild": lambda: 10.0 ** rng.uniform(-9, 6, rows),
        "few": lambda: (rng.uniform(size=rows) < 0.2).astype(float),
    }
    return kinds[kind]() if kind in kinds else None


def _labels(case: Case, rng: np.random.Generator) -> np.ndarray | None:
    processes = len(case.processes)
    if case.labels == "none" or processes == 0:
        return None
    labels = rng.integers(processes, size=case.rows)
    if case.labels == "one":
        return np.zeros(case.rows, int)
    return (
        np.where(rng.uniform(size=case.rows) < 0.2, labels, -1) if case.labels == "few" else labels
    )


def make_data(case: Case) -> Data:
    """The data of a case."""
    rng = np.random.default_rng(case.seed)
    X = _inputs(case.inputs, (case.rows, case.columns), rng)
    y = _targets(case.targets, X, case, rng)
    source = np.where(
        rng.uniform(size=case.rows) < case.repeats,
        rng.integers(case.rows, size=case.rows),
        np.arange(case.rows),
    )
    X = case.x_scale * (X[source] + case.x_offset)
    y = case.y_scale * (y[source] + case.y_offset)
    if case.way == "gaps":
        X[rng.uniform(size=case.rows) < 0.1, 0] = np.nan
        y[rng.uniform(size=case.rows) < 0.1, -1] = np.nan
    if case.outputs == 1 and case.flat:
        y = y[:, 0]
    return Data(X, y, _weights(case.weights, case.rows, rng), _labels(case, rng))


def make_model(case: Case, data: Data) -> DAGP:
    """The unfitted model of a case."""
    processes = [PROCESSES[name](case.columns) for name in case.processes]
    return DAGP(
        "auto" if not processes else len(processes),
        processes or None,
        GATES[case.gate](case.columns),
        inducing=_inducing(case, data),
        inference=INFERENCE[case.inference],
        n_init=case.n_init,
        max_iter=case.max_iter,
        tol=1e-3,
        posterior=case.posterior,
        batch_size=case.batch,
        standardize=case.standardize,
        dtype=case.dtype,
        missing="drop" if case.way == "gaps" else "raise",
        random_state=case.seed % 2**31,
        warm_start=case.way == "warm",
    )


def _inducing(case: Case, data: Data) -> Any:
    if case.inducing == "positions":
        # A column may be missing in all rows.
        X = np.where(np.all(np.isnan(data.X), axis=0), 0.0, data.X)
        low, high = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
        steps = np.linspace(0, 1, 6)[:, None]
        return (1 - steps) * low + steps * high
    return {"default": None, "few": 5, "one": 1}[case.inducing]
