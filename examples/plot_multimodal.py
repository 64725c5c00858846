"""
Several functions in one cloud of points
========================================

Three functions are observed at the same inputs. Two of them coincide outside of a bump. We ask for
up to four processes and let the model find out how many there are, and where.
"""

import matplotlib.pyplot as plt

from dagp import DAGP, datasets, plot

data = datasets.multimodal(random_state=0)
model = DAGP(n_processes=4, random_state=0).fit(data.X, data.y)
print(model.summary())

# %%
# The joint posterior is as opaque as a process is likely. The gate shows a third of the data in
# each process where three functions can be told apart, and one process doing for two where they
# coincide on the left. A superfluous process stays unused.

plot.overview(model, data.X, data.y)

# %%
# How the search went: every start of the race, and the bound of the one that was kept.

plot.bound(model, ax=plt.figure().gca())
