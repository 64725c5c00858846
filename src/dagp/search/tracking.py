"""Multi-target tracking of several functions along a single input.

Slopes distinguish curves that cross. A Rao-Blackwellised particle filter samples the assignment of
each point to a curve; given the assignments every curve is a Kalman filter (the state of a
Matérn-3/2 process is its value and its slope). Several length scales and noise levels run in
parallel, and the evidence chooses among them.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np

from dagp.core.typing import Float, Int

LENGTHSCALES = (0.3, 0.6, 1.2)
NOISE_LEVELS = (0.02, 0.05, 0.1, 0.2)
"""In standardised units."""
PARTICLES = 64
CHECKED, LOST = 24, 20.0
"""After every so many points, settings whose log evidence is this far behind are given up."""
CLUTTER = 0.2
"""Share of the points that belong to no curve, where there is clutter."""


class Tracks(NamedTuple):
    """Curve of each point (−1: clutter), and the hyperparameters of the highest evidence."""

    member: Int[np.ndarray, " N"]
    lengthscale: float
    noise_std: float


class _Curves(NamedTuple):
    """Kalman filters: settings G, particles S, curves K, outputs P."""

    value: Float[np.ndarray, "G S K P"]
    slope: Float[np.ndarray, "G S K P"]
    variance: Float[np.ndarray, "G S K"]
    covariance: Float[np.ndarray, "G S K"]
    slope_variance: Float[np.ndarray, "G S K"]

    def ahead(
        self, distance: Float[np.ndarray, "G 1 1"], decay: Float[np.ndarray, "G 1 1"]
    ) -> "_Curves":
        """Prediction step of the Kalman filters over this distance."""
        fade, turn = np.exp(-decay * distance), decay * distance
        a, b = fade * (1 + turn), fade * distance
        c, d = -fade * decay * turn, fade * (1 - turn)
        variance, covariance, slope_variance = self[2:]
        return _Curves(
            a[..., None] * self.value + b[..., None] * self.slope,
            c[..., None] * self.value + d[..., None] * self.slope,
            1 + a**2 * (variance - 1) + 2 * a * b * covariance + b**2 * (slope_variance - decay**2),
            a * c * (variance - 1)
            + (a * d + b * c) * covariance
            + b * d * (slope_variance - decay**2),
            decay**2
            + c**2 * (variance - 1)
            + 2 * c * d * covariance
            + d**2 * (slope_variance - decay**2),
        )

    def having_seen(
        self, surprise: Float[np.ndarray, "G S K P"], noise: Float[np.ndarray, "G 1 1"], mine: Any
    ) -> "_Curves":
        """Update step of the curves marked by `mine` with an observation."""
        variance, covariance, slope_variance = self[2:]
        total = variance + noise**2
        gain, turn = mine * variance / total, mine * covariance / total
        return _Curves(
            self.value + gain[..., None] * surprise,
            self.slope + turn[..., None] * surprise,
            variance - gain * variance,
            covariance - gain * covariance,
            slope_variance - turn * covariance,
        )


def follow(
    x: Float[np.ndarray, " N"],
    y: Float[np.ndarray, "N P"],
    curves: int,
    clutter: bool,
    rng: np.random.Generator,
) -> tuple[Tracks, Tracks]:
    """Track a number of curves from the first point to the last, and from the last to the first, in
    one pass; `x` must be sorted."""
    one_way = np.array(list(itertools.product(LENGTHSCALES, NOISE_LEVELS)))
    settings, ways = np.vstack([one_way, one_way]), np.repeat([0, 1], len(one_way))
    distances = np.abs(np.stack([np.diff(s, prepend=s[:1]) for s in (x, x[::-1])], axis=1))
    points = np.stack([y, y[::-1]], axis=1)
    shape = (len(settings), PARTICLES, curves)
    level, one = np.zeros((*shape, y.shape[1])), np.ones(shape)
    state = _Curves(level, level, one, 0 * one, 3 / settings[:, 0, None, None] ** 2 * one)
    log_weight = np.full(shape[:2], -np.log(PARTICLES))
    evidence = np.zeros(len(settings))
    density = _Densities.of(y, curves, clutter)
    history: list[_Past] = []
    group = np.arange(len(settings))
    for number, (distance, point) in enumerate(zip(distances, points, strict=True)):
        if number % CHECKED == CHECKED - 1:
            best = np.array([np.max(evidence[ways[group] == way]) for way in (0, 1)])
            # Beside a huge value, all evidences of a direction are equal to rounding: all stay.
            kept = ~(evidence < best[ways[group]] - LOST)
            group, evidence, log_weight = group[kept], evidence[kept], log_weight[kept]
            state = _Curves(*(part[kept] for part in state))
        decay, noise = np.sqrt(3) / settings[group, 0, None, None], settings[group, 1, None, None]
        state = state.ahead(distance[ways[group], None, None], decay)
        surprise = point[ways[group], None, None] - state.value
        score = density.log_scores(surprise, state.variance + noise**2)
        log_weight = log_weight + _logsumexp(score)
        gumbel = -np.log(-np.log(rng.uniform(1e-12, 1, score.shape)))
        choice = np.argmax(score + gumbel, axis=-1)
        state = state.having_seen(surprise, noise, np.arange(curves) == choice[..., None])
        step = _logsumexp(log_weight)
        evidence, log_weight = evidence + step, log_weight - step[:, None]
        parent = _resampled(log_weight, rng)
        if parent is not None:
            state = _Curves(*(part[np.arange(len(group))[:, None], parent] for part in state))
            renewed = np.any(parent != np.arange(PARTICLES), axis=1, keepdims=True)
            log_weight = np.where(renewed, -np.log(PARTICLES), log_weight)
        history.append(_Past(group, choice, parent))
    there, back = (
        int(group[np.argmax(np.where(ways[group] == w, evidence, -np.inf))]) for w in (0, 1)
    )
    members = [_ancestry(history, best, curves) for best in (there, back)]
    return (
        Tracks(members[0], *map(float, settings[there])),
        Tracks(members[1][::-1], *map(float, settings[back])),
    )


class _Densities(NamedTuple):
    """Log probabilities of a point, besides the Gaussian one of a curve."""

    on_curve: float
    off_curve: float
    outputs: int

    @staticmethod
    def of(y: Float[np.ndarray, "N P"], curves: int, clutter: bool) -> "_Densities":
        if not clutter:
            return _Densities(-np.log(curves), -np.inf, y.shape[1])
        width = np.ptp(y, axis=0)
        off_curve = np.log(CLUTTER) - np.sum(np.log(np.where(width > 0, width, 1.0)))
        return _Densities(np.log1p(-CLUTTER) - np.log(curves), off_curve, y.shape[1])

    def log_scores(
        self, surprise: Float[np.ndarray, "G S K P"], total: Float[np.ndarray, "G S K"]
    ) -> Float[np.ndarray, "G S J"]:
        """Of every curve and, last, of none."""
        squares = np.sum(surprise**2, axis=-1) / total
        score = self.on_curve - 0.5 * (squares + self.outputs * np.log(2 * np.pi * total))
        none = np.full((*score.shape[:2], 1), self.off_curve)
        return np.concatenate([score, none], axis=-1)


class _Past(NamedTuple):
    """Settings followed at a point, the curve each particle chose, and its parent."""

    group: Int[np.ndarray, " G"]
    choice: Int[np.ndarray, "G S"]
    parent: Int[np.ndarray, "G S"] | None


def _logsumexp(values: Float[np.ndarray, "... J"]) -> Float[np.ndarray, "..."]:
    """Over the last axis; faster than SciPy's, which handles cases that cannot occur here."""
    top = np.max(values, axis=-1)
    return top + np.log(np.sum(np.exp(values - top[..., None]), axis=-1))


def _resampled(
    log_weight: Float[np.ndarray, "G S"], rng: np.random.Generator
) -> Int[np.ndarray, "G S"] | None:
    """Parent of each particle: by systematic resampling where the effective sample size is low, and
    the particle itself elsewhere; None if it is low nowhere."""
    weight = np.exp(log_weight)
    enough = np.sum(weight**2, axis=1, keepdims=True) < 2 / PARTICLES
    if np.all(enough):
        return None
    marks = (np.arange(PARTICLES) + rng.uniform()) / PARTICLES
    ceilings = np.cumsum(weight, axis=1) / np.sum(weight, axis=1, keepdims=True)
    parent = np.minimum(np.sum(ceilings[:, None, :] < marks[:, None], axis=-1), PARTICLES - 1)
    return np.where(enough, np.arange(PARTICLES), parent)


def _ancestry(history: list[_Past], setting: int, curves: int) -> Int[np.ndarray, " N"]:
    """Curve of every point along the ancestry of one surviving particle."""
    particle, labels = 0, []
    for group, choice, parent in reversed(history):
        row = np.searchsorted(group, setting)
        particle = particle if parent is None else int(parent[row, particle])
        labels.append(int(choice[row, particle]))
    labels = np.array(labels[::-1])
    return np.where(labels == curves, -1, labels)
