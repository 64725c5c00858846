"""
Two machines in one log
=======================

Two cart-poles, one with a short pole, were driven with random actions. Their transitions are in one
log that does not record which machine produced which row. A row holds the state before an action
and the action; the target is the change of the pole's angle. The model has two processes and gets
no labels. The truth is only used to check the result.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import adjusted_rand_score

from dagp import DAGP, datasets, plot

data = datasets.cartpole(n=200, n_test=300, random_state=0)
print(data.X.shape, data.feature_names)

# %%
# Five inputs and two unknown functions. Small data, few inducing points and a loose tolerance keep
# this example short; the defaults take longer and are more accurate.

model = DAGP(n_processes=2, inducing=40, tol=1e-3, random_state=0)
model.fit(data.X, data.y)
print(model.summary())

# %%
# The numbering of the processes is arbitrary (label switching), so the assignment is compared with
# the truth up to the order of the processes.

order = [0, 1] if np.mean(model.assignment_ == data.process) >= 0.5 else [1, 0]
accuracy = np.mean(np.array(order)[model.assignment_] == data.process)
print(f"association accuracy: {accuracy:.0%}")
print(f"adjusted Rand index: {adjusted_rand_score(data.process, model.assignment_):.2f}")

# %%
# Each process is a model of one machine. Its error on new transitions of that machine is about the
# noise of the measurement (0.1); on transitions of the other machine it is larger.

for machine, name in enumerate(["default pole", "short pole"]):
    process = model.processes_[order.index(machine)]
    for other, label in enumerate(["default", "short"]):
        rows = data.process_test == other
        error = process.predict(data.X_test[rows]) - data.y_test[rows]
        print(f"{name} on transitions of {label}: RMSE {np.sqrt(np.mean(error**2)):.3f}")

# %%
# The change of the angle grows with the angular velocity, and the short pole is the faster one.
# Left, the log; right, the assignments, with a ring around every row that was assigned to the wrong
# machine. These lie where both machines behave nearly alike.

_, (left, right) = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
plot.data(data.X, data.y, column=3, ax=left)
plot.assignment(model, data.X, data.y, column=3, ax=right)
wrong = np.array(order)[model.assignment_] != data.process
right.scatter(data.X[wrong, 3], data.y[wrong], s=40, facecolors="none", edgecolors="black", lw=0.8)
left.set(title="the log", xlabel="angular velocity of the pole", ylabel="change of the angle")
right.set(
    title=f"assignments, {accuracy:.0%} right", xlabel="angular velocity of the pole", ylabel=""
)
plt.show()
