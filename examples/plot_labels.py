"""
Partly known assignments
========================

Two targets approach each other, are not observed for a while and separate again. They may have
crossed or turned round: the data do not determine which. Four labelled readings do.
"""

import matplotlib.pyplot as plt
import numpy as np

from dagp import DAGP, plot

rng = np.random.default_rng(3)
x = np.concatenate([rng.uniform(-3, -0.8, 80), rng.uniform(0.8, 3, 80)])
truth = rng.integers(0, 2, len(x))
y = np.where(truth == 0, 1, -1) * np.hypot(0.35, x) + 0.08 * rng.standard_normal(len(x))
X = x[:, None]

# %%
# Without labels the model prefers the smoother solution, two straight lines that cross. The data
# were simulated from two targets that turned round.

unlabelled = DAGP(n_processes=2, random_state=0).fit(X, y)


def right(assignment):
    """Proportion of readings with the right target, up to the order of the targets."""
    same = np.mean(assignment == truth)
    return max(same, 1 - same)


print(f"without labels: {right(unlabelled.assignment_):.0%} of the readings with their target")

# %%
# Labels hold the number of the process for known rows, and −1 for all others. Four suffice: each
# target once on either side of the gap.

labels = np.full(len(x), -1)
for side in (x < -2, x > 2):
    for target in (0, 1):
        labels[np.flatnonzero(side & (truth == target))[0]] = target

labelled = DAGP(n_processes=2, random_state=0).fit(X, y, labels=labels)
print(f"labels given: {np.sum(labels >= 0)} of {len(labels)}")
print(f"with labels: {np.mean(labelled.assignment_ == truth):.0%} of the readings, by number")

# %%
# Labels have two effects. They choose between solutions that the data do not distinguish, and they
# fix the numbering: process 0 is the target labelled 0. A label is taken as certain; leave doubtful
# rows at −1.

_, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
for ax, fitted, title in zip(
    axes, (unlabelled, labelled), ("no labels", "four labels"), strict=True
):
    plot.posterior(fitted, ax=ax)
    plot.assignment(fitted, X, y, ax=ax)
    ax.set_title(title, pad=20)
known = labels >= 0
axes[1].plot(x[known], y[known], "o", mfc="none", mec="black", ms=10, label="labelled")
axes[1].legend(loc="upper center", fontsize="small")
plt.show()
