"""Whether probabilities mean what they say: data drawn from the model itself.

How far the coverage of a draw may be off: new points are coins, level (1 − level) / n; and a noise
level learned from m points is off by 1 / √(2m) of itself, which moves all of them together. The
points of a draw share its fit, so the mean over draws has the sum of both, divided by their number;
three standard errors are allowed. Noise a third too low or too high moves 80 % by more than 0.1.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from calibration import coverage, label_scores, matched
from prior_draws import TEST_POINTS, Structure, draw

QUICK = {"n_init": 2, "max_iter": 200, "tol": 1e-3, "random_state": 0}


def scores(structure, seeds, size, **settings):
    """Coverage and labels of every draw."""
    found = []
    for seed in seeds:
        data = draw(seed, structure, size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = data.default().set_params(**settings).fit(data.train.X, data.train.y)
        mixture = model.predict_mixture(data.test.X)
        row = coverage(mixture, data.test.y)
        if structure.processes > 1:
            shares = mixture.responsibilities(data.test.y)[:, matched(model, data)]
            row |= label_scores(shares, data.test.label)
        found.append(row)
    return {name: np.array([row[name] for row in found]) for name in found[0]}


def allowed(level, draws, per_process):
    """Three standard errors of the mean coverage over draws."""
    z = norm.ppf(0.5 + level / 2)
    points = level * (1 - level) / TEST_POINTS
    noise = (2 * z * norm.pdf(z)) ** 2 / (2 * per_process)
    return 3 * np.sqrt((points + noise) / draws)


def check(found, per_process):
    """Coverage within what chance allows, at every level."""
    for level in (0.5, 0.8, 0.95):
        for kind in ("interval", "hdr"):
            values = found[f"{kind}_{level:.0%}"]
            assert abs(values.mean() - level) < allowed(level, len(values), per_process), kind


def test_one_process():
    check(scores(Structure(1, False, 1), range(3), 120, **QUICK), 120)


def test_two_processes():
    found = scores(Structure(2, False, 1), range(3), 120, **QUICK)
    check(found, 60)
    # A label is right or not: a coin, the same for points that are in doubt together.
    claimed, right = found["claimed"].mean(), found["right"].mean()
    assert abs(claimed - right) < allowed(claimed, len(found["right"]), 60)


@pytest.mark.slow
@pytest.mark.parametrize("structure", [Structure(1, True, 1), Structure(2, False, 1)], ids=str)
def test_more_draws(structure):
    check(scores(structure, range(20), 250, random_state=0), 125)
