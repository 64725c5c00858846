"""
From data to decision
=====================

A canoe on a river: the further down, the better the view, and the nearer the waterfall. Who drops
starts again at the top. From a log of random paddling we learn how the river flows and where it is
dangerous, look ahead, and find a policy, without going near the water.
"""

import matplotlib.pyplot as plt
import numpy as np

from dagp import DAGP, GP, datasets, plot
from dagp.dynamics import TransitionModel, improve_policy

data = datasets.wet_chicken(n=200, random_state=0)
river = data.simulator
print(data.X.shape, f"{np.mean(data.process):.0%} of the steps end in a drop")

# %%
# Two regimes. Drifting is a function of place and paddling, whose noise varies: the river is calm
# on one side and turbulent on the other. A drop always ends at (0, 0), which we know and say. Few
# inducing points and a loose tolerance keep this example short.

drifting = GP(noise_gp=GP())
model = TransitionModel(
    DAGP(1, drifting, inducing=40, n_init=2, tol=1e-3, random_state=0),
    reset=river.reset,
    bounds=river.bounds,
    action_bounds=river.action_bounds,
)
model.fit(data.states, data.actions, data.next_states)
print(model.model_.summary())

# %%
# The gate is the probability of a drop. On this river it has a closed form, and we can compare.

found = model.predict_regimes(data.X_test[:, :2], data.X_test[:, 2:])[:, 1]
print(f"error of the drop probability: {np.sqrt(np.mean((found - data.y_test) ** 2)):.2f}")

# %%
# The reward is how far down the canoe is. A careful canoeist also pays for the probability of a
# drop, which the model gives to the reward. Both policies are found on the model alone.


def bold_reward(state, action, after, p):
    """How far down the canoe is."""
    return after[0]


def careful_reward(state, action, after, p):
    """The same, with a price on the probability of a drop."""
    return after[0] * (1 - p[1]) - 5 * p[1]


effort = {"n_init": 1, "max_iter": 150, "random_state": 0}
bold = improve_policy(model, bold_reward, **effort)
careful = improve_policy(model, careful_reward, **effort)
print(f"the model expects {bold.value:.2f} ± {bold.value_std:.2f} per step of the bold policy")

# %%
# Looking ahead: trajectories in the colour of their regime, and the hazard under each policy.

_, axes = plt.subplots(2, 2, figsize=(10, 7.5), layout="constrained")
for row, (name, policy) in zip(
    axes, (("bold", bold.policy), ("careful", careful.policy)), strict=True
):
    paths = model.rollout(policy, [2.0, 2.0], horizon=15, n_samples=200, random_state=0)
    plot.fan(paths, name=f"x, {name}", ax=row[0])
    plot.hazard(model, 1, policy=policy, ax=row[1])
    row[1].set(xlabel="x", ylabel="y", title=f"hazard, {name}")

# %%
# Then, and only then, the true river: reward and share of drops per step, beside random paddling.

rng = np.random.default_rng(0)
tried = {
    "random": lambda states: rng.uniform(-1, 1, states.shape),
    "bold": bold.policy,
    "careful": careful.policy,
}
for name, policy in tried.items():
    reward, drops = river.evaluate(policy, random_state=0)
    print(f"{name:8} reward {reward:.2f}, drops {drops:.1%}")

# %%
# What such a policy can and cannot be trusted with is said in the documentation: the value above is
# the opinion of a model that has seen 200 steps.
