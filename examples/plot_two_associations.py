"""
Two associations that are equally good
======================================

Two machines run at different levels, are not observed for a while and go on. Which level before the
pause is which machine after it? The data do not say, and the model should not pretend to know.
"""

import matplotlib.pyplot as plt
import numpy as np

from dagp import DAGP, plot

rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(-3, -0.9, 60), rng.uniform(0.9, 3, 50)])
upper = rng.integers(0, 2, len(x)) == 0
level = np.where(upper, 1.2 + 0.5 * np.sin(3 * x), -1.2 + 0.5 * np.cos(3.3 * x))
X, y = x[:, None], level + 0.15 * rng.standard_normal(len(x))

# %%
# By default the best association is taken as known, although another one is almost as good.

best = DAGP(2, random_state=0).fit(X, y)
print(f"least sure of all rows: {best.responsibilities_.max(axis=1).min():.2f}")

# %%
# ``posterior="averaged"`` looks for other associations and averages over those that are almost as
# probable. `association_weights_` says how probable each of them is; on one side of the pause, so
# sure is the model of the machine of a row.

model = DAGP(2, posterior="averaged", random_state=0).fit(X, y)
print(model.summary())
print("probabilities of the associations:", model.association_weights_.round(2))
sure = model.responsibilities_.max(axis=1)
for name, side in (("before", x < 0), ("after", x > 0)):
    print(
        f"{name} the pause: the machine of a row is known with probability {sure[side].mean():.2f}"
    )

# %%
# The machines are numbered by the side that has more rows. On the other side each of them is at one
# level or at the other, and its band covers both. Joint draws of its function follow one
# association each.

grid = np.linspace(-3, 3, 200)[:, None]
_, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
for ax, fitted, title in zip(axes, (best, model), ("best association", "averaged"), strict=True):
    ax.scatter(x, y, s=8, color="0.6")
    for k, process in enumerate(fitted.processes_):
        mean, std = process.predict(grid, return_std=True)
        (line,) = ax.plot(grid, mean, label=f"process {k}")
        color = line.get_color()
        ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, color=color, alpha=0.15)
        draws = process.sample_y(grid, 12, random_state=0)
        ax.plot(grid, draws.T, color=color, lw=0.5, alpha=0.6)
    ax.set_title(title)
axes[0].legend()
plt.show()

# %%
# Draws of whole associations keep together what belongs together: the rows of a side change
# their machines all at once or not at all.

draws = model.sample_assignments(X, y, 1000, random_state=0)
before, after = (
    np.array([np.mean(draw[side] == upper[side]) > 0.5 for draw in draws])
    for side in (x < 0, x > 0)
)
print(f"the upper level stays the upper one in {np.mean(before == after):.0%} of the draws")

# %%
# A label on either side decides.

labels = np.full(len(x), -1)
for side in (x < 0, x > 0):
    labels[np.flatnonzero(side & upper)[0]] = 0
known = DAGP(2, posterior="averaged", random_state=0).fit(X, y, labels=labels)
print("with two labels:", known.association_weights_[0])
plot.overview(known, X, y)
plt.show()
