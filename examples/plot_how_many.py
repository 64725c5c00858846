"""
How many processes?
===================

Three curves cross, and we pretend not to know that there are three. There are two ways to find out:
ask for more than are needed and see which are used, or let ``"auto"`` do that. The evidence bound
says whether a further process was worth having.
"""

import matplotlib.pyplot as plt
import numpy as np

from dagp import DAGP, datasets, plot

data = datasets.crossings(processes=3, crossings=1, n=180, random_state=2)

# %%
# The bound for two, three and four processes. It rises as long as another process explains
# something, and then stays level or falls: a process too many costs something and earns nothing.

quick = {"tol": 1e-3, "random_state": 0}
counts = [2, 3, 4]
models = [DAGP(n_processes=k, **quick).fit(data.X, data.y) for k in counts]
for k, model in zip(counts, models, strict=True):
    print(f"{k} asked for, {np.sum(model.active_)} in use, bound {model.lower_bound_:.1f}")

# %%
# A process counts as unused when hardly a point belongs to it. ``active_`` says which are in use;
# the others are still there but do not matter to any prediction.

print(models[-1].summary())

# %%
# ``"auto"`` begins with six, drops those that the bound has no use for, and returns a model of the
# rest. It costs one larger fit instead of a handful of small ones.

automatic = DAGP("auto", **quick).fit(data.X, data.y)
print(f"found: {len(automatic.processes_)} processes, bound {automatic.lower_bound_:.1f}")

# %%
# Bounds are comparable between models of the same data. Differences of a few units mean little;
# here the step from two to three processes is worth hundreds.

_, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.plot(counts, [model.lower_bound_ for model in models], "o-", color=plot.colour(0))
left.axhline(automatic.lower_bound_, color="0.6", ls="--", label='"auto"')
left.set(xlabel="processes asked for", ylabel="evidence bound", xticks=counts)
left.legend()
plot.posterior(automatic, data.X, data.y, ax=right)
right.set_title(f'"auto": {len(automatic.processes_)} processes', pad=20)
plt.show()
