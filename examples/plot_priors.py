"""
Stating prior knowledge
=======================

Priors are stated in the units of the data: a noise level, a period, a length scale. Stated
parameters need not be inferred, and also hold where there are no data.
"""

import matplotlib.pyplot as plt
import numpy as np

from dagp import DAGP, GP, LogNormal, fixed, kernels, parameter, plot

# %%
# Two loads on one meter, read at random times over five days: a plant that follows the day, and a
# pump whose load drifts. On the fourth day the meter was off.

rng = np.random.default_rng(0)
hours = rng.uniform(0, 120, 230)
hours = np.sort(hours[(hours < 72) | (hours > 96)])


def plant(t):
    """Load of the plant in kW: the same every day."""
    day = 2 * np.pi * t / 24
    return 6 + 2 * np.sin(day) + 0.8 * np.sin(2 * day + 1)


def pump(t):
    """Load of the pump in kW: slow drift."""
    return 3.5 + 1.2 * np.sin(t / 40)


source = rng.integers(0, 2, len(hours))
load = np.where(source == 0, plant(hours), pump(hours)) + 0.2 * rng.standard_normal(len(hours))
X = hours[:, None]

# %%
# Three statements. The noise of the meter is about 0.2 kW (a log-normal prior with that median; 0.3
# is the standard deviation of the log, about 30 %), and as there is only one meter, both processes
# have the same noise level: parameters with the same ``tie`` have one value. The period of the
# plant is exactly 24 hours (``fixed`` excludes a parameter from training). The pump changes over
# days, not hours (a prior on its length scale).

meter = parameter(prior=LogNormal(0.2, 0.3), tie="meter")
slow = parameter(prior=LogNormal(40.0, 0.5))
daily = GP(kernels.Periodic(period=fixed(24.0)), noise_std=meter)
drift = GP(kernels.SquaredExponential(lengthscale=slow), noise_std=meter)

plain = DAGP(n_processes=2, tol=1e-3, random_state=0).fit(X, load)
informed = DAGP(processes=[daily, drift], tol=1e-3, random_state=0).fit(X, load)
print(informed.summary())

# %%
# The fit without prior knowledge warns that only one of its starts led to this solution; the
# informed one does not. Processes of a list keep their order, so process 0 is the plant. On the day
# without readings the period determines the load of the plant; without it, the prediction returns
# to the prior.

off = np.linspace(73, 95, 200)[:, None]


def error(model):
    """RMSE of the plant's load while the meter was off, by the process that fits it better."""
    means = [process.predict(off) for process in model.processes_]
    return min(np.sqrt(np.mean((mean - plant(off[:, 0])) ** 2)) for mean in means)


print(
    f"error while the meter was off: {error(plain):.2f} kW without, {error(informed):.2f} kW with"
)

# %%
# ``tie`` works for every parameter of a kernel. Two processes with the same length scale are
# ``GP(kernels.SquaredExponential(lengthscale=parameter(tie="smoothness")))`` twice; the one with
# fewer points then benefits from the other.
#
# The same data without and with prior knowledge.

_, axes = plt.subplots(2, 1, figsize=(9, 6), sharex=True, sharey=True, layout="constrained")
for ax, model, title in zip(
    axes, (plain, informed), ("nothing stated", "period, noise and drift stated"), strict=True
):
    ax.axvspan(72, 96, color="0.93", lw=0)
    plot.posterior(model, X, load, ax=ax)
    ax.plot(off, plant(off[:, 0]), color="black", ls="--", lw=1, label="plant, meter off")
    ax.set(title=title, ylabel="load (kW)", xlabel="")
    ax.legend(loc="upper right", fontsize="small")
axes[1].set_xlabel("hours")
plt.show()
