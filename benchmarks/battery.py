"""Data sets on which the search is recorded and its parts are judged (`record.py`).

``frozen`` are sixty data sets of every kind of model that `DAGP` and `RobustGPR` fit: they show
what a change of the search changes. ``held`` are kinds and seeds of data that had no part in its
design: hysteresis loops, pumps, regimes behind a wall, tracks in the plane, quantised and
rough functions, fans, parallel curves, clutter of 5 to 60 %, spare processes, noise GPs.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import prior_draws
import sheets
from robust_unseen import data as corrupted
from sheets import Array, Draw, observed, smooth

from dagp import DAGP, GP, DeepGP, Noise, RobustGPR, datasets

Fitted = Any


class Case(NamedTuple):
    """A data set, how it is fitted, and the process of each row where that is known."""

    X: Array
    y: Array
    fit: Callable[[int], Fitted]
    process: Array | None = None
    clear: Array | None = None
    """Rows that can be told apart, given the true functions."""


def _fitted(model: Callable[[], Any], X: Array, y: Array, **given: Any) -> Callable[[int], Fitted]:
    return lambda seed: model().set_params(random_state=seed).fit(X, y, **given)


def case(draw: Draw, model: Callable[[], Any] | None = None, **given: Any) -> Case:
    """A draw, by default with the model that knows the number of processes."""
    fit = _fitted(model or draw.model, draw.X, draw.y, **given)
    return Case(draw.X, draw.y, fit, draw.process, draw.clear)


def cluttered(draw: Draw, share: float, rng: np.random.Generator) -> Draw:
    """The draw with this share of its rows replaced by uniform clutter."""
    low, high = draw.y.min(axis=0), draw.y.max(axis=0)
    lost = rng.random(len(draw.X)) < share
    anywhere = rng.uniform(low - 0.1 * (high - low), high + 0.1 * (high - low), draw.y.shape)
    near = np.abs(anywhere - draw.y) < 0.1 * (high - low)
    mask = lost if draw.y.ndim == 1 else lost[:, None]
    return draw._replace(
        y=np.where(mask, anywhere, draw.y),
        process=np.where(lost, draw.functions, draw.process),
        clear=draw.clear & ~(lost & near.reshape(len(lost), -1).any(axis=1)),
        clutter=True,
    )


def of_functions(X: Array, functions: Array, rng: np.random.Generator, noise: float = 0.05) -> Draw:
    """Rows of functions (K, N) at random, with noise relative to their spread."""
    process = rng.integers(0, len(functions), len(X))
    return observed(X, functions, process, noise * functions.std(), rng)


def _line(rng: np.random.Generator, rows: int = 300) -> tuple[Array, Array]:
    x = np.sort(rng.uniform(-1, 1, rows))
    return x[:, None], x


def loops(rng: np.random.Generator) -> Case:
    """The two branches of a hysteresis loop."""
    X, x = _line(rng)
    width, steep = rng.uniform(0.1, 0.4), rng.uniform(3, 8)
    return case(of_functions(X, np.tanh(steep * np.stack([x - width, x + width])), rng, 0.04))


def pumps(rng: np.random.Generator) -> Case:
    """Head over flow and speed of three pumps."""
    X = rng.uniform(0, 1, (400, 2))
    flow, speed = X[:, 0], 0.6 + 0.4 * X[:, 1]
    shut, fall = np.sort(rng.uniform(0.8, 2.0, 3)), rng.uniform(0.2, 0.8, 3)
    heads = shut[:, None] * speed**2 - fall[:, None] * flow**2 - 0.1 * flow * speed
    return case(of_functions(X, heads, rng, 0.06))


def wall(rng: np.random.Generator) -> Case:
    """Two regimes on the two sides of a curved wall."""
    X = rng.uniform(-1, 1, (400, 2))
    beyond = X[:, 1] > 0.4 * np.sin(3 * X[:, 0] + rng.uniform(0, 6))
    functions = np.stack([smooth(X, 1.0, rng), smooth(X, 1.0, rng)])
    return case(observed(X, functions, beyond.astype(int), 0.06, rng))


def tracks(rng: np.random.Generator) -> Case:
    """Three objects that move in the plane."""
    X, t = _line(rng)
    speed, phase = rng.uniform(1, 3, (3, 2)), rng.uniform(0, 6, (3, 2))
    places = np.sin(speed[..., None] * t + phase[..., None]).transpose(0, 2, 1)
    process = rng.integers(0, 3, len(t))
    own = places[process, np.arange(len(t))]
    gap = np.linalg.norm(places - own, axis=2)
    gap[process, np.arange(len(t))] = np.inf
    y = own + 0.04 * rng.standard_normal(own.shape)
    return case(Draw(X, y, process, gap.min(axis=0) > 0.2, 3))


def quantised(rng: np.random.Generator) -> Case:
    """Two functions read with one digit."""
    X, _ = _line(rng)
    draw = of_functions(X, np.stack([smooth(X, 0.5, rng), smooth(X, 0.5, rng)]), rng)
    return case(draw._replace(y=np.round(draw.y, 1)))


def rough(rng: np.random.Generator) -> Case:
    """Two functions that are continuous and have kinks everywhere, well apart."""
    X, x = _line(rng)
    near = np.exp(-np.abs(x[:, None] - x) / 1.0) + 1e-9 * np.eye(len(x))
    functions = 0.4 * np.linalg.cholesky(near) @ rng.standard_normal((len(x), 2))
    return case(of_functions(X, functions.T + np.array([[0.0], [1.5]]) * x, rng, 0.06))


def saw(rng: np.random.Generator) -> Case:
    """A sawtooth and a sine."""
    X, x = _line(rng)
    tooth = 2 * ((rng.uniform(1, 2) * x + rng.uniform()) % 1) - 1
    return case(of_functions(X, np.stack([tooth, np.sin(rng.uniform(2, 5) * x)]), rng))


def small(rng: np.random.Generator) -> Case:
    """Two functions, sixty rows."""
    X, _ = _line(rng, 60)
    return case(of_functions(X, np.stack([smooth(X, 0.7, rng), smooth(X, 0.7, rng)]), rng))


def fan(rng: np.random.Generator) -> Case:
    """Four curves from one point."""
    X, x = _line(rng, 400)
    slopes = np.sort(rng.uniform(-2, 2, 4)) + np.arange(4)
    return case(of_functions(X, slopes[:, None] * (x + 1) + 0.3 * np.sin(4 * x), rng, 0.03))


def parallel(rng: np.random.Generator) -> Case:
    """Three levels of one curve."""
    X, _ = _line(rng, 400)
    curve = smooth(X, 0.4, rng)
    return case(of_functions(X, curve + np.array([[0.0], [0.5], [1.2]]), rng, 0.06))


def gap(rng: np.random.Generator) -> Case:
    """Two functions without rows in a stretch of the input."""
    X, x = _line(rng, 400)
    X = X[(x < -0.1) | (x > 0.25)][:300]
    return case(of_functions(X, np.stack([smooth(X, 0.6, rng), smooth(X, 0.6, rng)]), rng))


def clutter(D: int, K: int, rng: np.random.Generator) -> Case:
    """K functions of D inputs among clutter of 5 to 30 %."""
    X = rng.uniform(-1, 1, (400, D))
    functions = np.stack([smooth(X, 0.8 * D**0.5, rng) for _ in range(K)])
    return case(cluttered(of_functions(X, functions, rng), rng.uniform(0.05, 0.3), rng))


def lonely(rng: np.random.Generator) -> Case:
    """One function of two inputs among clutter of 30 to 60 %."""
    X = rng.uniform(-1, 1, (400, 2))
    draw = of_functions(X, smooth(X, 0.8, rng)[None], rng)
    return case(cluttered(draw, rng.uniform(0.3, 0.6), rng))


def spare(D: int, rng: np.random.Generator) -> Case:
    """Two functions, four processes."""
    X = rng.uniform(-1, 1, (400, D))
    draw = of_functions(X, np.stack([smooth(X, 0.8 * D**0.5, rng) for _ in range(2)]), rng)
    return case(draw, lambda: DAGP(4))


def spare_clutter(rng: np.random.Generator) -> Case:
    """One function and outliers, with two functions and clutter."""
    X, _ = _line(rng)
    draw = of_functions(X, smooth(X, 0.5, rng)[None], rng)
    return case(cluttered(draw, 0.15, rng), lambda: DAGP(processes=[GP(), GP(), Noise()]))


def noise_gp(rng: np.random.Generator) -> Case:
    """A function whose noise grows, and another one."""
    X, x = _line(rng)
    functions = np.stack([smooth(X, 0.6, rng), smooth(X, 0.6, rng) + rng.choice([-2, 2])])
    process = rng.integers(0, 2, len(x))
    noise = np.where(process == 0, 0.02 + 0.2 * (x + 1) / 2, 0.05)
    own = functions[process, np.arange(len(x))]
    y = own + noise * rng.standard_normal(len(x))
    apart = np.abs(functions[0] - functions[1]) > 4 * np.maximum(noise, 0.05)
    draw = Draw(X, y, process, apart, 2)
    return case(draw, lambda: DAGP(processes=[GP(noise_gp=GP()), GP()]))


def heavy(rng: np.random.Generator) -> Case:
    """Two functions with Student-t noise."""
    X, _ = _line(rng)
    functions = np.stack([smooth(X, 0.6, rng), smooth(X, 0.6, rng)])
    draw = of_functions(X, functions, rng, 0.0)
    draw = draw._replace(
        y=draw.y + 0.05 * rng.standard_t(3, len(draw.y)),
        clear=np.abs(functions[0] - functions[1]) > 0.5,
    )
    return case(draw, lambda: DAGP(processes=[GP(noise="student"), GP(noise="student")]))


def _sheet(cell: str, seed: int) -> Case:
    return case(sheets.CELLS[cell](seed))


def _prior(structures: tuple[prior_draws.Structure, ...], seed: int) -> Case:
    draw = prior_draws.draw(seed, structures=structures)
    model = draw.default
    return Case(draw.train.X, draw.train.y, _fitted(model, draw.train.X, draw.train.y))


def _dataset(make: Callable[..., Any], model: Callable[[], Any], seed: int) -> Case:
    data = make(random_state=seed)
    clear = data.get("separable", np.ones(len(data.y), bool))
    return Case(data.X, data.y, _fitted(model, data.X, data.y), data.process, clear)


def _drawn(make: Callable[..., Case], seed: int) -> Case:
    return make(np.random.default_rng([seed, 20261119]))


def _labelled(seed: int) -> Case:
    draw = sheets.crossing(seed)
    labels = np.full(len(draw.X), -1)
    labels[:20] = draw.process[:20]
    return case(draw, labels=labels)


def _weighted(seed: int) -> Case:
    draw = sheets.functions_of(1, 2, 4 * seed)
    weight = np.random.default_rng(seed).exponential(size=len(draw.X))
    return case(draw, sample_weight=weight)


def _batched(seed: int) -> Case:
    draw = sheets.functions_of(1, 3, 12 * seed + 2)
    return case(draw, lambda: draw.model(batch_size=250, max_iter=300))


def _robust(name: str, kind: str, seed: int) -> Case:
    data = corrupted(name, kind, seed)
    clear = np.ones(len(data.y), bool)
    fit = _fitted(lambda: RobustGPR(), data.X, data.y)
    return Case(data.X, data.y, lambda seed: fit(seed).model_, data.process, clear)


def _cartpole(model: Callable[[], Any], seed: int) -> Case:
    return _dataset(datasets.cartpole, model, seed)


def _multimodal(noise: float, model: Callable[[], Any], seed: int) -> Case:
    data = datasets.multimodal(noise=noise, random_state=seed)
    middle = (data.X[:, 0] > 0) & (data.X[:, 0] < 5)
    return Case(data.X, data.y, _fitted(model, data.X, data.y), data.process, middle)


def _noise(outliers: float, seed: int) -> Case:
    data = datasets.noise_separation(outliers, random_state=seed)
    fit = _fitted(lambda: DAGP(processes=[GP(), Noise()]), data.X, data.y)
    return Case(data.X, data.y, fit, data.process, np.ones(len(data.y), bool))


def _auto(draw: Callable[[int], Draw], seed: int) -> Case:
    return case(draw(seed), lambda: DAGP("auto"))


def _averaged(seed: int) -> Case:
    draw = sheets.functions_of(1, 2, 6 * seed)
    return case(draw, lambda: draw.model(posterior="averaged"))


Maker = Callable[[int], Case]


def curves(K: int, times: int) -> Maker:
    """K curves that cross so many times."""
    make = functools.partial(datasets.crossings, K, times)
    return functools.partial(_dataset, make, lambda: DAGP(K))


FROZEN: dict[str, tuple[Maker, int]] = {
    **{
        cell: (functools.partial(_sheet, cell), 1)
        for cell in sheets.CELLS
        if cell not in ("5 inputs, 4 functions",)
    },
    "prior draws, one input": (functools.partial(_prior, prior_draws.STRUCTURES), 8),
    "prior draws, several inputs": (functools.partial(_prior, prior_draws.SEVERAL_INPUTS), 3),
    "noise separation .4": (functools.partial(_noise, 0.4), 1),
    "noise separation .8": (functools.partial(_noise, 0.8), 2),
    "multimodal .005": (functools.partial(_multimodal, 0.005, lambda: DAGP(4)), 2),
    "multimodal .05": (functools.partial(_multimodal, 0.05, lambda: DAGP(4)), 2),
    "2 curves": (curves(2, 3), 1),
    "3 curves": (curves(3, 5), 1),
    "5 curves": (curves(5, 3), 1),
    "switch": (functools.partial(_dataset, datasets.switch, lambda: DAGP(2)), 1),
    "rare": (functools.partial(_dataset, datasets.rare, lambda: DAGP(2)), 1),
    "trajectories": (
        functools.partial(
            _dataset, datasets.trajectories, lambda: DAGP(processes=[GP(), GP(), GP(), Noise()])
        ),
        1,
    ),
    "heteroscedastic": (
        functools.partial(_dataset, datasets.heteroscedastic, lambda: DAGP(2)),
        1,
    ),
    "cart-pole": (functools.partial(_cartpole, lambda: DAGP(2)), 2),
    "noise GP": (functools.partial(_drawn, noise_gp), 2),
    "heavy tails": (functools.partial(_drawn, heavy), 2),
    "two layers": (
        functools.partial(_dataset, datasets.switch, lambda: DAGP(processes=[DeepGP(), GP()])),
        1,
    ),
    "labels": (_labelled, 2),
    "weights": (_weighted, 2),
    "tracks": (functools.partial(_drawn, tracks), 1),
    "batches": (_batched, 1),
    "averaged": (_averaged, 1),
    "spare": (functools.partial(_drawn, functools.partial(spare, 1)), 1),
    "auto, one input": (
        functools.partial(_auto, functools.partial(sheets.functions_of, 1, 2)),
        2,
    ),
    "auto, two inputs": (functools.partial(_auto, sheets.crossing), 1),
    "robust otl": (functools.partial(_robust, "otl", "uniform"), 1),
    "robust friedman2": (functools.partial(_robust, "friedman2", "asymmetric"), 1),
    "robust friedman3": (functools.partial(_robust, "friedman3", "none"), 1),
    "robust diabetes": (functools.partial(_robust, "diabetes", "uniform"), 1),
}
"""Kinds of the frozen record, and the number of seeds of each."""

_HELD: dict[str, tuple[Callable[..., Case], int]] = {
    **{each.__name__: (each, 10) for each in (loops, pumps, wall, tracks, quantised, rough)},
    **{each.__name__: (each, 10) for each in (saw, small, fan, parallel, gap, lonely)},
    **{each.__name__: (each, 10) for each in (spare_clutter, noise_gp, heavy)},
    **{
        f"clutter {D} {K}": (functools.partial(clutter, D, K), 8) for D in (1, 2, 3) for K in (2, 3)
    },
    **{f"spare {D}": (functools.partial(spare, D), 8) for D in (1, 2)},
}
HELD: dict[str, tuple[Maker, int]] = {
    **{kind: (functools.partial(_drawn, make), seeds) for kind, (make, seeds) in _HELD.items()},
    **{
        cell: (functools.partial(_sheet, cell), 4)
        for cell in sheets.CELLS
        if not cell.startswith("5") or cell == "5 inputs, 2 functions"
    },
    "prior draws": (functools.partial(_prior, prior_draws.STRUCTURES), 24),
    "4 curves": (curves(4, 3), 6),
    "5 curves": (curves(5, 5), 6),
}
"""The same of the kinds that had no part in the design."""
SETS = {"frozen": FROZEN, "held": HELD}
FIRST_SEED = {"frozen": 1, "held": 300}


def cases(name: str) -> Iterator[tuple[str, int, Maker]]:
    """Kind, seed and maker of every case of a set."""
    for kind, (make, count) in SETS[name].items():
        for seed in range(FIRST_SEED[name], FIRST_SEED[name] + count):
            yield kind, seed, make
