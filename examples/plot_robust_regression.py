"""
Robust regression, compared with scikit-learn
=============================================

A smooth signal, and a share of readings that have nothing to do with it, spread over the range from
−1 to 3: more of them above the signal than below. How far off is the estimate of the signal?
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
# Each rival gets a sensible setting: eleven knots suit this signal, and RANSAC is told the
# noise level as its threshold, which the others are not.

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
    """The estimate of the signal alone: of a DAGP, its first process."""
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
# Least squares, as in the plain GP, follows the middle of signal and outliers. Huber's loss bounds
# how much an outlier counts but still counts all of them, and here most are on one side. RANSAC
# looks for a subset that agrees; it needs a threshold, and luck once good subsets become rare. The
# mixture explains the outliers instead of resisting them. It is also the slowest of the four by
# far: with few outliers, or a straight line, the simpler tools will do.

_, (left, right) = plt.subplots(1, 2, figsize=(10, 4), width_ratios=(3, 2), layout="constrained")
left.plot(shown.X, shown.y, ".", color="0.75", ms=4)
left.plot(shown.X_test, shown.y_test, color="black", lw=3, alpha=0.4, label="truth")
for name, mean in curves.items():
    left.plot(shown.X_test, mean, lw=1.8, label=name)
    right.plot(shares, errors[name], "o-", label=name)
left.set(title="40 % outliers", xlabel="x", ylabel="y")
left.legend(loc="upper right", fontsize="small")
right.set(xlabel="share of outliers", ylabel="RMSE of the signal", yscale="log")
plt.show()
