"""
Several functions in one cloud of points
========================================

Three functions are observed at the same inputs. Two of them coincide outside of a bump. The model
has four processes, and infers how many are needed and where.
"""

import matplotlib.pyplot as plt

from dagp import DAGP, datasets, plot

data = datasets.multimodal(random_state=0)
model = DAGP(n_processes=4, random_state=0).fit(data.X, data.y)
print(model.summary())

# %%
# In the joint posterior the opacity of a process is its weight. The gate gives a third to each
# process where three functions can be told apart; on the left, where two coincide, one process
# accounts for both. The superfluous process stays unused.

plot.overview(model, data.X, data.y)

# %%
# The ELBO of the solution by training step.

plot.bound(model, ax=plt.figure().gca())
