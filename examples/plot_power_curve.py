"""
Cleaning a power curve
======================

The power curve of a wind turbine, power over wind speed, is read off operating data. These also
hold hours in which the turbine stood still or ran with reduced power, and readings that mean
nothing. The model separates the states, and the healthy curve then tells what each of the others
has cost.
"""

import matplotlib.pyplot as plt
import numpy as np

from dagp import DAGP, GP, Noise, datasets, plot

# %%
# Twelve weeks of ten-minute means, simulated: wind speed in m/s, power in kW. Below 4 m/s the
# turbine hardly runs in any state, so those rows say nothing about it. The data set knows the state
# of every row, which is used here for a few labels and, at the end, to check the result.

data = datasets.turbine(
    n=12_000, curtailments=0, downtime=0.06, faults=0.08, clutter=0.02, random_state=1
)
windy = data.X[:, 0] > 4
X, power, truth = data.X[windy], data.y[windy], data.process[windy]
states = ["healthy", "standstill", "icing", "clutter"]
print(f"{len(X)} rows above 4 m/s")

# %%
# Every fifteenth row is enough to find the curves: neighbouring rows are alike. The operator's log
# names the state of some of them. Labels are optional; a few of them make the search short, and
# they number the processes: 0 is healthy, 1 standstill, 2 icing. The scatter of a healthy turbine
# depends on the wind, so its process has a noise GP. Clutter is what no curve explains.

some = slice(None, None, 15)
labels = np.full(len(X[some]), -1)
for state, every in ((0, 50), (1, 5), (2, 5)):
    labels[np.flatnonzero(truth[some] == state)[::every]] = state
processes = [GP(noise_gp=GP()), GP(), GP(), Noise()]
model = DAGP(processes=processes, n_init=4, inducing=16, tol=1e-3, random_state=0)
model.fit(X[some], power[some], labels=labels)
print(f"{np.sum(labels >= 0)} of {len(labels)} rows labelled")
print(model.summary())

# %%
# The model assigns all rows, also those it was not fitted to. A row that lies on two curves, as at
# the lowest wind speeds, has a share in both.

shares = model.responsibilities(X, power)
state = shares.argmax(axis=1)
print(f"{np.mean(state == truth):.1%} of all rows in their state")

# %%
# Energy lost
# -----------
#
# A row in another state has lost what the healthy curve gives at its wind speed, less what it
# produced, for ten minutes. Clutter is left out: its readings say nothing about the power.

healthy = model.processes_[0].predict(X)
lost = shares * (healthy - power)[:, None] / 6 / 1000
curve = np.interp(X[:, 0], data.X_test[:, 0], data.y_test[:, 0])
really = [np.sum((curve - power)[truth == k]) / 6 / 1000 for k in (1, 2)]
produced = power[truth != 3].sum() / 6 / 1000
for k in (1, 2):
    estimate = lost[:, k].sum()
    share = estimate / produced
    print(f"{states[k]:10} {estimate:6.1f} MWh, {share:.1%} of the energy produced", end="")
    print(f" (true: {really[k - 1]:.1f} MWh)")

# %%
# The usual power curve, means of bins of half a metre per second, is pulled down by the hours that
# were not healthy. It underestimates what a healthy turbine gives, and so every loss.

edges = np.arange(4, 17.5, 0.5)
middle, place = (edges[1:] + edges[:-1]) / 2, np.digitize(X[:, 0], edges)
bins = np.array([power[place == i].mean() for i in range(1, len(edges))])
grid = middle[:, None]
right = np.interp(middle, data.X_test[:, 0], data.y_test[:, 0])
for name, found in (("bins", bins), ("model", model.processes_[0].predict(grid))):
    print(f"{name:6} off by {np.abs(found - right).mean():5.1f} kW on average")

# %%
# Left: the rows by state, and the healthy curve with the means of bins. Right: energy lost by
# state.

_, (left, side) = plt.subplots(1, 2, figsize=(10, 4.2), width_ratios=(3, 1), layout="constrained")
for k, name in enumerate(states):
    at = state == k
    left.scatter(X[at], power[at], s=4, color=plot.colour(k), linewidths=0, label=name)
line = np.linspace(4, X.max(), 200)[:, None]
left.plot(line, model.processes_[0].predict(line), color="black", lw=2, label="healthy curve")
left.plot(middle, bins, "--", color="0.35", lw=1.5, label="means of bins")
left.set(xlabel="wind speed (m/s)", ylabel="power (kW)")
left.legend(fontsize="small", markerscale=3)
place = np.arange(2)
side.bar(place - 0.2, [lost[:, k].sum() for k in (1, 2)], 0.4, color=plot.colour(0), label="model")
side.bar(place + 0.2, really, 0.4, color="0.75", label="true")
side.set_xticks(place, states[1:3])
side.set(ylabel="energy lost (MWh)")
side.legend(fontsize="small")
plt.show()
