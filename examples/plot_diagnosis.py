"""
Is this the only answer?
========================

The ELBO has several local optima, and sometimes two associations are equally good. A fit then
issues a warning. This example simulates such data and shows the diagnostics.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from dagp import DAGP, SearchWarning, plot

rng = np.random.default_rng(1)
x = np.concatenate([rng.uniform(-3, -0.8, 80), rng.uniform(0.8, 3, 80)])
side = rng.choice([1, -1], len(x))
y = side * np.hypot(0.64, x) + 0.08 * rng.standard_normal(len(x))
X = x[:, None]

# %%
# Two curves that come close to each other where there are no data: they may cross or turn round.
# Warnings are caught here to be printed.

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model = DAGP(n_processes=2, random_state=0).fit(X, y)
doubts = [str(w.message) for w in caught if issubclass(w.category, SearchWarning)]
print("\n".join(doubts) or "no warnings")

# %%
# The verbose summary has a second table: every start of the multi-start search, its ELBO at each
# rung of the race, where it was dropped, and the moves that were tried. The
# same is in ``model.restarts_``.

print(model.summary(verbose=True))
print("converged:", model.converged_, "after", model.n_iter_, "steps")

# %%
# Other solutions are kept as models of their own, best first. They predict and can be plotted like
# the best one, but were trained only as far as the search took them.

print("ELBO of the solution:", round(model.lower_bound_, 1))
print("ELBOs of the alternatives:", [round(other.lower_bound_, 1) for other in model.alternatives_])

# %%
# Top: the solution and the best alternative. Bottom left: the race; each line is a start, and lower
# means further from the best. Bottom right: the ELBO of the solution by step. It should rise and
# level off; if it still rises at the end, there is a ``ConvergenceWarning``. Where two solutions
# are as close as here, label a few points, as in the example on labels.

_, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
plot.posterior(model, X, y, ax=axes[0, 0]).set_title("the solution", pad=20)
if model.alternatives_:
    plot.posterior(model.alternatives_[0], X, y, ax=axes[0, 1]).set_title(
        "the best alternative", pad=20
    )
plot.restarts(model, ax=axes[1, 0]).set_title("the race between starts")
plot.bound(model, ax=axes[1, 1]).set_title("training of the solution")
plt.show()
