"""The data sets are what the paper says they are."""

import numpy as np
import pytest

from dagp import datasets


def signal(x):
    return np.cos(np.pi * x / 2) * np.exp(-((x / 2) ** 2))


def test_noise_separation():
    data = datasets.noise_separation(outliers=0.4, n=20000, random_state=0)
    inlier = data.process == 0
    residual = data.y[inlier] - signal(data.X[inlier, 0])
    assert np.mean(~inlier) == pytest.approx(0.4, abs=0.02)
    assert residual.std() == pytest.approx(0.15, rel=0.03)
    clutter = data.y[~inlier]
    assert clutter.min() >= -1
    assert clutter.max() <= 3
    assert clutter.mean() == pytest.approx(1.0, abs=0.05)
    np.testing.assert_allclose(data.y_test, signal(data.X_test[:, 0]))
    assert data.X_test[[0, -1], 0].tolist() == [-3.0, 3.0]


def test_noise_separation_without_noise():
    data = datasets.noise_separation(outliers=0.4, noise=0.0, random_state=0)
    inlier = data.process == 0
    np.testing.assert_allclose(data.y[inlier], signal(data.X[inlier, 0]), atol=1e-15)
    with pytest.raises(ValueError, match="share between 0 and 1"):
        datasets.noise_separation(outliers=1.5)


@pytest.mark.parametrize(("noise", "level"), [(0.005, -1.0), (0.05, -2.25)])
def test_multimodal(noise, level):
    data = datasets.multimodal(noise=noise, n=5000, random_state=0)
    x = data.X[:, 0]
    curves = [
        np.sin(x),
        np.sin(x) - 2 * np.exp(-((x - 2) ** 2) / 2),
        level - 3 * x / (8 * np.pi) + 0.3 * np.sin(2 * x),
    ]
    for k, curve in enumerate(curves):
        residual = (data.y - curve)[data.process == k]
        assert residual.std() == pytest.approx(noise, rel=0.05)
        assert abs(residual.mean()) < noise / 10
    np.testing.assert_array_equal(x[:5000], x[5000:10000])


def scalar_cartpole(state, force, pole_mass, half_length):
    """One Euler step written for one cart-pole, term by term as in the classic environment."""
    x, x_dot, theta, theta_dot = state
    total_mass, polemass_length = 1.0 + pole_mass, pole_mass * half_length
    temp = (force + polemass_length * theta_dot**2 * np.sin(theta)) / total_mass
    theta_acc = (9.8 * np.sin(theta) - np.cos(theta) * temp) / (
        half_length * (4.0 / 3.0 - pole_mass * np.cos(theta) ** 2 / total_mass)
    )
    x_acc = temp - polemass_length * theta_acc * np.cos(theta) / total_mass
    return [
        x + 0.02 * x_dot,
        x_dot + 0.02 * x_acc,
        theta + 0.02 * theta_dot,
        theta_dot + 0.02 * theta_acc,
    ]


@pytest.mark.parametrize(("system", "pole"), [("default", (0.1, 0.5)), ("short", (0.05, 0.05))])
def test_cartpole_transitions(system, pole):
    data = datasets.cartpole(system, n=40, n_test=10, noise=0.0, random_state=1)
    for row, turn in zip(data.X, data.y, strict=True):
        state = list(row[:4])
        for _ in range(5):
            state = scalar_cartpole(state, 10 * row[4], *pole)
        assert state[2] - row[2] == pytest.approx(turn, abs=1e-9)
    assert np.all(np.abs(data.X[:, 2]) <= np.pi)
    assert np.all(np.abs(data.X[:, 4]) <= 1)


def test_cartpole_mixture():
    data = datasets.cartpole(n=500, n_test=50, random_state=0)
    assert data.X.shape == (1000, 5)
    assert data.X_test.shape == (100, 5)
    assert np.bincount(data.process).tolist() == [500, 500]
    starts = data.X[::10]
    assert np.all(np.abs(starts[:, :4]) <= 0.05)
    noisy = datasets.cartpole("default", n=2000, random_state=0)
    clean = datasets.cartpole("default", n=2000, noise=0.0, random_state=0)
    assert (noisy.y - clean.y).std() == pytest.approx(0.1, rel=0.05)
    with pytest.raises(ValueError, match="system must be"):
        datasets.cartpole("long")
    unwrapped = datasets.cartpole("short", n=500, wrap_angle=False, random_state=0)
    assert np.abs(unwrapped.X[:, 2]).max() > np.pi
