"""
Online updates
==============

Readings keep arriving, and the earlier ones are not kept. ``partial_fit`` updates a fitted model
with the new rows alone.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from dagp import DAGP, datasets, plot

# %%
# Two curves that cross. The rows arrive in batches; the last 300 are held out to score the
# predictions.

data = datasets.crossings(processes=2, crossings=2, noise=0.15, n=1000, random_state=3)
X, y = data.X[:700], data.y[:700]
X_new, y_new = data.X[700:], data.y[700:]
batches = np.split(np.arange(len(X)), [200, 300, 400, 500, 600])

# %%
# The first call is a fit like any other: it searches the association and chooses kernels, inducing
# inputs and noise levels. So the first batch should cover the inputs that will occur, and be large
# enough to tell the processes apart.

model = DAGP(n_processes=2, tol=1e-3, random_state=0)
model.partial_fit(X[batches[0]], y[batches[0]])
print(model.summary())
first = model.processes_[0].predict(data.X_test, return_std=True)

# %%
# Every further call adds what its rows say about the functions and the gate, and adjusts the noise
# levels. It costs a fraction of a fit. Kernels and inducing inputs stay as they are. Every row
# counts as new: rows that come twice count twice, and nothing is forgotten. The attributes per row,
# such as ``assignment_``, are those of the latest batch.

seen, scores = [len(batches[0])], [model.log_score(X_new, y_new)]
for batch in batches[1:]:
    model.partial_fit(X[batch], y[batch])
    seen.append(seen[-1] + len(batch))
    scores.append(model.log_score(X_new, y_new))
    print(f"{seen[-1]} rows: held-out log density {scores[-1]:.3f}")
print("rows with attributes:", len(model.assignment_))

# %%
# A model of all rows at once is the standard of comparison. Updates come close to it if the first
# batch was large enough to choose kernels and inducing inputs well.

together = DAGP(n_processes=2, tol=1e-3, random_state=0).fit(X, y)
print(f"all at once: held-out log density {together.log_score(X_new, y_new):.3f}")

# %%
# A model file holds the state of the updates too. A service can be stopped and go on later.

with tempfile.TemporaryDirectory() as folder:
    path = model.save(Path(folder) / "model.dagp")
    again = DAGP.load(path).partial_fit(X_new[:100], y_new[:100])
print(f"goes on after a restart: {again.log_score(X_new[100:], y_new[100:]):.3f}")

# %%
# Left: the held-out score rises with every batch. Right: the band of one function, two standard
# deviations, after the first batch and after the last. If the process itself changes over time, old
# rows must not count: fit the recent rows again, with ``warm_start=True``, or make time an input.

last = model.processes_[0].predict(data.X_test, return_std=True)
_, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot(seen, scores, "o-", color=plot.colour(0), label="partial_fit")
left.axhline(together.log_score(X_new, y_new), color="0.6", ls="--", label="all rows at once")
left.set(xlabel="rows seen", ylabel="held-out log density")
left.legend()
right.scatter(X, y, s=4, color="0.8", linewidths=0)
grid = data.X_test[:, 0]
for (mean, std), k, name in ((first, 1, "after 200 rows"), (last, 0, "after 700 rows")):
    right.fill_between(grid, mean - 2 * std, mean + 2 * std, color=plot.colour(k), alpha=0.5, lw=0)
    right.plot(grid, mean, color=plot.colour(k), lw=1.2, label=name)
right.set(xlabel="x", ylabel="y", title="one of the two functions")
right.legend(fontsize="small")
plt.show()
