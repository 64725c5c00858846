"""
Reading the report
==================

``report.write`` makes one HTML page of a fitted model, which opens in any browser, offline. This
example goes through its sections, says what to look for, and how to get the same numbers in
Python.
"""

import html
import re
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from dagp import DAGP, GP, Noise, datasets, plot, report

# %%
# Two curves that cross and some readings that belong to neither, as a table with names: the report
# uses them.

rng = np.random.default_rng(0)
data = datasets.crossings(processes=2, crossings=1, noise=0.1, n=300, random_state=2)
table = pd.DataFrame({"speed": data.X[:, 0], "flow": data.y})
lost = rng.choice(len(table), 15, replace=False)
table.loc[lost, "flow"] = rng.uniform(-3, 3, 15)
model = DAGP(processes=[GP(), GP(), Noise()], tol=1e-3, random_state=0)
model.fit(table[["speed"]], table["flow"])

with tempfile.TemporaryDirectory() as folder:
    page = report.write(model, table[["speed"]], table["flow"], Path(folder) / "report.html")
    text = page.read_text("utf-8")
print("\n".join(re.findall(r"<h2[^>]*>(.*?)</h2>", text)))

# %%
# What this means
# ---------------
#
# The first section is in words: how the rows were divided, what is doubtful, and what to do about
# it. Read it first; the others are its evidence.

said = re.search(r'<ul class="said">(.*?)</ul>', text, re.S).group(1)
for item in re.findall(r"<li>(.*?)</li>", said, re.S):
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html.unescape(item)))
    print("-", words.strip())

# %%
# Processes
# ---------
#
# One row per process, as in ``model.summary()``. Compare the shares with what you expect, and the
# noise with the precision of the sensor: noise far above it means that one process covers two
# curves. *Unused* processes were not needed. *Where* is the range in which the gate gives them
# weight.

print(model.summary())

# %%
# Data and processes
# ------------------
#
# The same as ``plot.overview``. Pale points are uncertain: they lie where two curves meet. In the
# page, a click on a point explains it, and the pills at the top hide processes. The least certain
# rows in Python:

sure = model.responsibilities_.max(axis=1)
for row in np.argsort(sure)[:3]:
    shares = model.responsibilities_[row].round(2).tolist()
    print(f"row {row}: speed {table['speed'][row]:.2f}, flow {table['flow'][row]:.2f}, {shares}")

# %%
# Calibration
# -----------
#
# Of the intervals that should hold 50 % of the readings, do half of the readings lie inside? A
# curve below the diagonal means intervals that are too narrow, above it too wide. The histogram of
# the cumulative probability should be level. The page uses the rows of the fit; held-out rows are
# the harder test.

mixture = model.predict_mixture(table[["speed"]])
rank = mixture.cdf(table["flow"].to_numpy())
levels = np.linspace(0.05, 0.95, 19)
coverage = [np.mean(np.abs(rank - 0.5) <= level / 2) for level in levels]
for level in (0.5, 0.8, 0.95):
    print(f"{level:.0%} intervals hold {np.mean(np.abs(rank - 0.5) <= level / 2):.1%}")

# %%
# Outliers
# --------
#
# The rows that the clutter process explains best, most probable first. The page can download them.

found = model.outliers()
print(f"{len(found)} outliers, {np.isin(found, lost).sum()} of them put in by hand")

# %%
# Fit
# ---
#
# The ELBO should have levelled off, and several starts should have reached the best one.
# ``confidence_`` is the probability that no better association exists; below 0.9 or so, look at
# ``alternatives_`` or give a few labels.

print(f"converged: {model.converged_}, confidence {model.confidence_:.2f}")

# %%
# Three of the page's figures, from Python.

_, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
plot.posterior(model, ax=left)
plot.assignment(model, table[["speed"]], table["flow"], ax=left)
left.get_legend().remove()
left.set_title("data and processes")
middle.plot([0, 1], [0, 1], color="0.7", lw=1)
middle.plot(levels, coverage, "o-", ms=3, color=plot.colour(0))
middle.set(xlabel="level of the interval", ylabel="share of the rows inside", title="calibration")
plot.bound(model, ax=right).set_title("training")
plt.show()
