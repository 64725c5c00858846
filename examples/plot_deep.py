"""
Deep processes: levels with jumps
=================================

A GP with one length scale cannot model a function that is constant, jumps and is constant again: it
either smooths the jumps or oscillates between them. A composition of two smooth functions can: the
first one stretches the input where the jumps are. ``DeepGP(layers=2)`` is such a composition.
"""

import matplotlib.pyplot as plt
import numpy as np

from dagp import DAGP, DeepGP, datasets

data = datasets.steps(n=190, n_test=400, random_state=2)
shallow = DAGP(n_processes=1, tol=1e-3, random_state=0).fit(data.X, data.y)
deep = DAGP(n_processes=1, processes=DeepGP(layers=2), tol=1e-3, random_state=0)
deep.fit(data.X, data.y)

# %%
# Error against the true levels, and mean log density of new observations (larger is better).

for name, model in (("one layer", shallow), ("two layers", deep)):
    error = model.processes_[0].predict(data.X_test) - data.f_test
    score = model.log_score(data.X_test, data.y_test)
    print(f"{name:10}  RMSE {np.sqrt(np.mean(error**2)):.3f}  log density {score:.2f}")

# %%
# A deep process costs several times as much as a shallow one, because values between the layers are
# sampled. Use it where you expect kinks, plateaus or a length scale that varies with the input.
# Only the processes that need it have to be deep: ``[DeepGP(2), GP(), Noise()]`` is possible.

grid = np.linspace(-1, 1, 500)[:, None]
_, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
for ax, model, title in zip(axes, (shallow, deep), ("one layer", "two layers"), strict=True):
    mean, std = model.predict(grid, return_std=True)
    ax.plot(data.X, data.y, ".", color="0.7", ms=4)
    ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.25, lw=0)
    ax.plot(grid, mean, lw=2, label="prediction, two standard deviations")
    for place in data.jumps:
        ax.axvline(place, color="0.5", lw=0.8, ls=":")
    ax.set(title=title, xlabel="x")
axes[0].set_ylabel("y")
axes[0].legend(fontsize="small")
plt.show()
