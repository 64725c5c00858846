"""
How many processes?
===================

Three curves cross, and their number is treated as unknown. There are two ways to infer it: use more
processes than needed and see which are in use, or use ``"auto"``, which does that. The ELBO shows
whether a further process improves the model.
"""

import matplotlib.pyplot as plt
import numpy as np

from dagp import DAGP, datasets, plot

data = datasets.crossings(processes=3, crossings=1, n=180, random_state=2)

# %%
# The ELBO for two, three and four processes. It rises as long as another process explains data, and
# then stays level or falls: a superfluous process adds KL terms but no likelihood.

quick = {"tol": 1e-3, "random_state": 0}
counts = [2, 3, 4]
models = [DAGP(n_processes=k, **quick).fit(data.X, data.y) for k in counts]
for k, model in zip(counts, models, strict=True):
    print(f"{k} processes, {np.sum(model.active_)} in use, ELBO {model.lower_bound_:.1f}")

# %%
# A process counts as unused when its share of the data is negligible. ``active_`` shows which are
# in use; the others remain in the model but have almost no weight in predictions.

print(models[-1].summary())

# %%
# ``"auto"`` begins with six, drops those that stay unused, and returns a model of the
# rest. It costs one larger fit instead of several small ones.

automatic = DAGP("auto", **quick).fit(data.X, data.y)
print(f"found: {len(automatic.processes_)} processes, ELBO {automatic.lower_bound_:.1f}")

# %%
# ELBOs are comparable between models of the same data. Differences of a few units mean little; here
# the third process raises the ELBO by hundreds.

_, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
left.plot(counts, [model.lower_bound_ for model in models], "o-", color=plot.colour(0))
left.axhline(automatic.lower_bound_, color="0.6", ls="--", label='"auto"')
left.set(xlabel="number of processes", ylabel="ELBO", xticks=counts)
left.legend()
plot.posterior(automatic, data.X, data.y, ax=right)
right.set_title(f'"auto": {len(automatic.processes_)} processes', pad=20)
plt.show()
