"""
Many rows, and a GPU
====================

What changes with the number of rows, and what an accelerator needs. The example runs on any
machine; its size is modest so that it takes seconds on a laptop.
"""

import time

import jax
import matplotlib.pyplot as plt
import numpy as np

from dagp import DAGP, GP, Noise, datasets, plot

# %%
# Which device?
# -------------
#
# Fits run on the default device of JAX. With a GPU, install JAX for it (``pip install
# "jax[cuda12]"``); nothing else has to be changed, and a model that was fitted there loads
# anywhere.

print("device:", jax.devices()[0].device_kind)

# %%
# Minibatches
# -----------
#
# With ``batch_size`` the association is searched on some two thousand rows; then all rows train the
# solution in minibatches. It is the default above 20 000 rows, with batches of 1000. Here 6000
# rows, of which 40 % are outliers.

data = datasets.noise_separation(outliers=0.4, n=6000, random_state=0)
settings = {"processes": [GP(), Noise()], "n_init": 2, "tol": 1e-3, "random_state": 0}


def fitted(rows, **more):
    """A model of the first rows, the seconds it took and the error of its signal."""
    began = time.perf_counter()
    model = DAGP(**settings, **more).fit(data.X[:rows], data.y[:rows])
    seconds = time.perf_counter() - began
    signal = model.processes_[0].predict(data.X_test)
    return model, seconds, np.sqrt(np.mean((signal - data.y_test) ** 2))


fits = {
    "500 rows": fitted(500),
    "6000 rows": fitted(6000),
    "6000 rows, batches": fitted(6000, batch_size=1000),
}
for name, (_, seconds, error) in fits.items():
    print(f"{name:28} {seconds:5.1f} s   RMSE of the signal {error:.4f}")

# %%
# The times include compilation, which later fits of the same shape do not need: compiled programs
# are kept on disk, so run the example twice to see the difference. Minibatches pay where a step on
# all rows is expensive: the search costs the same for any number of rows, a step that of its batch,
# and the device never holds more than a few of these.
#
# What else helps
# ---------------
#
# - ``n_init`` and ``tol``: a rough fit (``n_init=2, tol=1e-2``) often shows whether the model is
#   right.
# - ``inducing``: a step costs the square of the number of inducing points. 32 suffice for most
#   curves.
# - ``dtype="float32"`` on a GPU: up to twice as fast, less robust where the noise is very small.
# - Tables that do not fit into memory: ``np.load("x.npy", mmap_mode="r")``, or chunks for
#   ``partial_fit``, as in the example on online updates.
# - ``progress=True`` shows how far a long fit is, and ``checkpoint="fit.checkpoint"`` with
#   ``resume=True`` continues it after an interruption.
# - A GPU is worthwhile for many rows, many inducing points, deep processes and many starts, which
#   then run together. Below a few thousand rows a CPU is as fast.
# - Several GPUs or machines share the rows: ``dagp launch``, or `dagp.distributed`.
#
# More rows reduce the error of the signal; minibatches do not change it.

_, (left, right) = plt.subplots(1, 2, figsize=(10, 4), width_ratios=(3, 2), layout="constrained")
model = fits["6000 rows, batches"][0]
plot.assignment(model, data.X[::4], data.y[::4], ax=left)
left.plot(data.X_test, model.processes_[0].predict(data.X_test), color="black", lw=1.5)
left.set_title("6000 rows in minibatches")
names = list(fits)[::-1]
right.barh(names, [fits[name][2] for name in names], color=plot.colour(0))
right.set(xlabel="RMSE of the signal")
plt.show()
