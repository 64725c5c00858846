"""Laplace approximation of the posterior of the hyperparameters.

With every q at its optimum, the ELBO is a function of the hyperparameters alone, the profiled ELBO.
By the envelope theorem its gradient is the partial derivative of the ELBO at that optimum. Its
curvature follows from differences of such gradients, and includes how functions, gate and
responsibilities respond to a hyperparameter.

Maximum likelihood leaves some hyperparameters undetermined: the length scale of a function with few
points, or with much noise, may grow without limit, and then the function is as good as constant and
its band has no width. Here every hyperparameter without a prior has a vague one, so that what the
data say nothing about remains uncertain within reason.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from dagp.core.gc import gc_paused
from dagp.core.programs import program
from dagp.core.sharding import to_host
from dagp.core.threads import concurrently
from dagp.core.typing import Bool, Float, PerProcess, Scalar
from dagp.inference.elbo import collapsed_elbo
from dagp.inference.parallel import width
from dagp.inference.train import State, StepRange, refine_q
from dagp.model.association import Batch, DataAssociation
from dagp.model.parameters import Parameter, is_parameter, trainable
from dagp.model.process import Process

VAGUE = 1.5
"""Standard deviation of the logarithm of a hyperparameter that has no prior, around one
standardised unit: within a factor of four and a half of the spread of the data."""
SETTLE, SETTLE_FAR = 10, 60
"""Natural-gradient steps after a change of hyperparameters, and after a large one."""
DIFFERENCE = 0.05
"""Change of a hyperparameter in differences of gradients."""
EVALUATIONS = 8
"""Most Newton steps to the optimum under vague priors."""
LONGEST = 1.5
"""Largest change of a hyperparameter in one of them."""
FAR = 0.5
"""Change of a hyperparameter of a function from which the curvature is computed again."""
NEAR = 0.01
"""Gain of the profiled ELBO below which the optimum is reached."""
LOST = 1.0
"""Fall of the ELBO by settling from which a state is not the optimum that training had found."""
MOST_INDUCING = 200
"""Inducing inputs up to which functions are settled again; exact inference has more."""

Vector = Float[np.ndarray, " H"]


class Layout(NamedTuple):
    """Hyperparameters of a model as a vector."""

    values: Vector
    """As in the model: logarithms of positive ones."""
    centre: Vector
    precision: Vector
    """Of their vague priors; precision 0 where there is another prior."""
    entries: tuple[Any, ...]
    """For every trained leaf, the index of each of its numbers in the vector."""
    of_functions: Bool[np.ndarray, " H"]
    """Which belong to a process with a function; the others to gate and clutter."""

    @staticmethod
    def of(model: DataAssociation) -> "Layout":
        nodes = jax.tree_util.tree_leaves_with_path(model, is_leaf=is_parameter)
        ties: dict[str, np.ndarray] = {}
        parts: list[tuple[np.ndarray, ...]] = []
        entries, count = [], 0
        for path, node in nodes:
            if not is_parameter(node) or node.frozen or _is_inducing(path):
                continue
            shape = np.shape(node.raw)
            known = ties.get(node.tie) if node.tie is not None else None
            if known is None:
                # Tied parameters share one value along the axis of the processes.
                own = shape if node.tie is None else shape[1:]
                known = count + np.arange(int(np.prod(own))).reshape(own)
                count += known.size
                raw = to_host(node.raw) if node.tie is None else to_host(node.raw)[0]
                described = _described(node, raw, own, stacked=path[0].name == "groups")
                parts.append((*described, _of_function(model, path, known)))
                if node.tie is not None:
                    ties[node.tie] = known
            entries.append(np.broadcast_to(known, shape))
        values, centre, precision, of_functions = (
            (np.concatenate([np.zeros(0), *column]) for column in zip(*parts, strict=True))
            if parts
            else np.zeros((4, 0))
        )
        return Layout(values, centre, precision, tuple(entries), of_functions > 0)

    def placed(self, model: DataAssociation, values: Vector) -> DataAssociation:
        """The model with these hyperparameters."""
        moving, rest = eqx.partition(model, _mask(model))
        leaves, structure = jax.tree.flatten(moving)
        leaves = [
            np.asarray(values[at], np.asarray(leaf).dtype)
            for leaf, at in zip(leaves, self.entries, strict=True)
        ]
        return eqx.combine(jax.tree.unflatten(structure, leaves), rest)

    def gathered(self, gradient: Any) -> Vector:
        """A tree of derivatives as a vector; those of tied parameters are added up."""
        found = np.zeros(len(self.values))
        for leaf, at in zip(jax.tree.leaves(gradient), self.entries, strict=True):
            np.add.at(found, at, np.asarray(leaf, np.float64))
        return found


def _described(
    node: Parameter, raw: np.ndarray, shape: tuple[int, ...], stacked: bool
) -> tuple[np.ndarray, ...]:
    """Values of a parameter, and centre and precision of its vague prior.

    `stacked`: the first axis is that of the processes, of the unit too.
    """
    values = np.asarray(raw, np.float64).ravel()
    unit = to_host(node.unit)
    if node.tie is not None and np.ndim(unit):
        unit = unit[0]
    elif stacked and np.ndim(unit) < len(shape):
        unit = unit.reshape(len(unit), *[1] * (len(shape) - np.ndim(unit)), *unit.shape[1:])
    # One number for several inputs, each of its own unit.
    unit = unit.mean(axis=tuple(range(len(shape), np.ndim(unit))))
    positive = node.support == "positive"
    centre = np.broadcast_to(unit, shape).ravel() if positive else values
    precision = np.full(len(values), VAGUE**-2 if node.prior is None else 0.0)
    return values, np.asarray(centre, np.float64), precision


def _of_function(model: DataAssociation, path: tuple[Any, ...], like: np.ndarray) -> np.ndarray:
    """1 for every number of a parameter of a process with a function, otherwise 0."""
    inside = path[0].name == "groups" and model.groups[path[1].idx].function is not None
    return np.full(like.size, float(inside))


def _mask(model: DataAssociation) -> Any:
    """As `trainable`, without inducing inputs, which are no part of the model."""

    def is_ours(path: tuple[Any, ...], moves: bool) -> bool:
        return moves and not _is_inducing(path)

    return jax.tree_util.tree_map_with_path(is_ours, trainable(model))


def _is_inducing(path: tuple[Any, ...]) -> bool:
    return any(getattr(key, "name", None) == "inducing" for key in path)


@program
@gc_paused()
def _slope(model: DataAssociation, batch: Batch) -> Any:
    """Derivatives of the ELBO by the hyperparameters, every q held fixed."""
    moving, rest = eqx.partition(model, _mask(model))

    def value(moving: Any) -> Scalar:
        whole = eqx.combine(moving, rest)
        return collapsed_elbo(whole, whole.project(batch.X), batch).value

    return jax.grad(value)(moving)


def why_not(model: DataAssociation) -> str | None:
    """Why the hyperparameters of a model cannot be averaged over; None if they can."""
    functions = [group for group in model.groups if group.function is not None]
    gate = getattr(model.gate, "latent", None)
    plain = gate is None or (len(gate.layers) == 1 and gate.can_widen)
    if not (plain and all(group.can_widen for group in functions)):
        return "functions and gate must have one layer and collapsed inference"
    if any(_inducing(group) > MOST_INDUCING for group in functions):
        return f"functions have more than {MOST_INDUCING} inducing points"
    return None


def _inducing(group: Process) -> int:
    assert group.function is not None
    return group.function.layers[-1].inducing.raw.shape[-2]


class Point(NamedTuple):
    """The profiled ELBO, with vague priors, at some hyperparameters."""

    values: Vector
    value: float
    gradient: Vector
    state: State


class Laplace(NamedTuple):
    """A Gaussian approximation of the posterior of the hyperparameters."""

    layout: Layout
    best: Point
    covariance: Float[np.ndarray, "H H"]

    def stds(self) -> DataAssociation:
        """The model with the standard deviation of every hyperparameter in its place."""
        stds = np.sqrt(np.diagonal(self.covariance))
        return self.layout.placed(self.best.state.model, stds)

    def log_evidence(self) -> float:
        """The ELBO with the hyperparameters integrated out, up to a constant of their number."""
        return self.best.value + 0.5 * float(np.linalg.slogdet(self.covariance)[1])

    def directions(self) -> Float[np.ndarray, "H F"]:
        """Columns: independent directions of the hyperparameters of functions, one standard
        deviation long; those of gate and clutter follow as they are correlated.

        What remains uncertain of gate and clutter when functions are held fixed changes functions
        through responsibilities only, for which linear response accounts.
        """
        own = self.layout.of_functions
        variances, vectors = np.linalg.eigh(self.covariance[np.ix_(own, own)])
        # Rounding may make the smallest ones negative.
        variances = np.maximum(variances, np.finfo(float).eps * variances.max(initial=0.0))
        return self.covariance[:, own] @ (vectors / np.sqrt(variances))


def settled_at(
    layout: Layout,
    model: DataAssociation,
    batch: Batch,
    given: PerProcess,
    values: Vector,
    steps: int = SETTLE,
) -> tuple[State, float]:
    """The model with every q settled at some hyperparameters, from `given` responsibilities, and
    its profiled ELBO with vague priors."""
    placed = layout.placed(model, values)
    state, bound, _ = refine_q(placed, batch, given, StepRange(1, 1 + steps))
    away = values - layout.centre
    return state, float(bound.value) - 0.5 * float(layout.precision @ away**2)


def profiled(
    layout: Layout,
    model: DataAssociation,
    batch: Batch,
    given: PerProcess,
    values: Vector,
    steps: int = SETTLE,
) -> Point:
    """The profiled ELBO at some hyperparameters, and its gradient."""
    state, value = settled_at(layout, model, batch, given, values, steps)
    gradient = layout.gathered(_slope(state.model, batch))
    return Point(values, value, gradient - layout.precision * (values - layout.centre), state)


def displaced(layout: Layout, best: Point, batch: Batch, step: Vector) -> Point:
    """The profiled ELBO a step away from the best hyperparameters."""
    model, given = best.state.model, best.state.responsibilities
    return profiled(layout, model, batch, given, best.values + step)


def curvature_at(layout: Layout, best: Point, batch: Batch) -> Float[np.ndarray, "H H"]:
    """Negative second derivatives of the profiled ELBO, by differences of gradients."""

    def row(step: Vector) -> Vector:
        return (best.gradient - displaced(layout, best, batch, step).gradient) / DIFFERENCE

    steps = DIFFERENCE * np.eye(len(layout.values))
    found = np.array(list(concurrently(row, steps, width(best.state))))
    return np.nan_to_num((found + found.T) / 2)


def bounded(curvature: Float[np.ndarray, "H H"]) -> tuple[Vector, Float[np.ndarray, "H H"]]:
    """Its eigenvalues and vectors: no direction is more uncertain than the vague prior."""
    scale, vectors = np.linalg.eigh(curvature)
    return np.maximum(scale, VAGUE**-2), vectors


def optimum(
    layout: Layout, begun: Point, batch: Batch, curvature: Float[np.ndarray, "H H"]
) -> tuple[Point, Float[np.ndarray, "H H"]]:
    """The best point of a few Newton steps, and the curvature with what they tell about it.

    Training has found the optimum without vague priors, and these are quadratic: where they matter
    most, in directions the data say little about, Newton steps are nearly exact.
    """
    best, longest = begun, LONGEST
    for _ in range(EVALUATIONS):
        scale, vectors = bounded(curvature)
        step = vectors @ ((best.gradient @ vectors) / scale)
        if best.gradient @ step < 2 * NEAR:
            break
        step *= min(1.0, longest / np.max(np.abs(step)))
        point = displaced(layout, best, batch, step)
        finite = np.isfinite(point.value) and np.all(np.isfinite(point.gradient))
        if finite:
            # The symmetric correction of rank one that agrees with the difference of gradients.
            wrong = best.gradient - point.gradient - curvature @ step
            along = float(wrong @ step)
            if abs(along) > 1e-8 * np.linalg.norm(wrong) * np.linalg.norm(step):
                curvature = curvature + np.outer(wrong, wrong) / along
        if finite and point.value > best.value:
            best = point
        else:
            longest = 0.3 * float(np.max(np.abs(step)))
    return best, curvature


def laplace(state: State, bound: float, batch: Batch) -> Laplace | None:
    """The approximation around the optimum near a trained state, whose ELBO is `bound`.

    None without hyperparameters, and where the ELBO does not survive settling: after exact
    inference of functions almost without noise, for which the jitter of a covariance is too much.
    """
    layout = Layout.of(state.model)
    if not len(layout.values):
        return None
    begun = profiled(layout, state.model, batch, state.responsibilities, layout.values)
    away = layout.values - layout.centre
    lost = bound - (begun.value + 0.5 * float(layout.precision @ away**2))
    if not (lost < LOST and np.all(np.isfinite(begun.gradient))):
        return None
    best, curvature = optimum(layout, begun, batch, curvature_at(layout, begun, batch))
    changed = np.abs(best.values - begun.values)[layout.of_functions]
    if np.max(changed, initial=0.0) > FAR:
        given = best.state.responsibilities
        best = profiled(layout, best.state.model, batch, given, best.values, SETTLE_FAR)
        best, curvature = optimum(layout, best, batch, curvature_at(layout, best, batch))
    scale, vectors = bounded(curvature)
    return Laplace(layout, best, (vectors / scale) @ vectors.T)
