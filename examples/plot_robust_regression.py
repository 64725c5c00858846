"""
Robust regression, compared with scikit-learn
=============================================

A smooth signal with outliers, uniform between −1 and 3 and so mostly above the signal. The RMSE of
the estimated signal is compared for several rates of outliers.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import HuberRegressor, LinearRegression, RANSACRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from dagp import DAGP, GP, Noise, datasets

# %%
# Scikit-learn's robust regressors are linear models. On a basis of splines they can follow a curve.
# Each method gets a suitable setting: eleven knots suit this signal, and the threshold of RANSAC is
# derived from the true noise level, which the others do not use.

splines = SplineTransformer(n_knots=11)
rivals = {
    "GP": GaussianProcessRegressor(RBF() + WhiteKernel(), normalize_y=True),
    "Huber": make_pipeline(splines, HuberRegressor(max_iter=1000)),
    "RANSAC": make_pipeline(
        splines,
        RANSACRegressor(
            LinearRegression(),
            min_samples=30,
            residual_threshold=0.3,
            max_trials=1000,
            random_state=0,
        ),
    ),
    "DAGP": DAGP(processes=[GP(), Noise()], tol=1e-3, random_state=0),
}


def signal(model, X):
    """Estimate of the signal: the first process of a DAGP, the prediction of the others."""
    return model.processes_[0].predict(X) if isinstance(model, DAGP) else model.predict(X)


# %%
# RMSE against the true signal, 190 readings each.

shares = [0.0, 0.2, 0.4, 0.6]
errors, curves = {name: [] for name in rivals}, {}
for share in shares:
    data = datasets.noise_separation(outliers=share, n=190, n_test=200, random_state=0)
    for name, rival in rivals.items():
        mean = signal(clone(rival).fit(data.X, data.y), data.X_test)
        errors[name].append(np.sqrt(np.mean((mean - data.y_test) ** 2)))
        if share == 0.4:
            curves[name], shown = mean, data

print("outliers" + "".join(f"{share:8.0%}" for share in shares))
for name, row in errors.items():
    print(f"{name:8}" + "".join(f"{error:8.3f}" for error in row))

# %%
# Least squares, as in the plain GP, estimates a mean of signal and outliers. Huber's loss bounds
# the influence of each outlier, but most are on one side, so a bias remains. RANSAC searches for a
# consistent subset; it needs a threshold, and fails more often when good subsets are rare. The
# mixture models the outliers explicitly. It is also by far the slowest of the four: with few
# outliers, or a straight line, the simpler methods suffice.

_, (left, right) = plt.subplots(1, 2, figsize=(10, 4), width_ratios=(3, 2), layout="constrained")
left.plot(shown.X, shown.y, ".", color="0.75", ms=4)
left.plot(shown.X_test, shown.y_test, color="black", lw=3, alpha=0.4, label="truth")
for name, mean in curves.items():
    left.plot(shown.X_test, mean, lw=1.8, label=name)
    right.plot(shares, errors[name], "o-", label=name)
left.set(title="40 % outliers", xlabel="x", ylabel="y")
left.legend(loc="upper right", fontsize="small")
right.set(xlabel="rate of outliers", ylabel="RMSE of the signal", yscale="log")
plt.show()
