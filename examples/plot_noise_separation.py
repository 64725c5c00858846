"""
A signal among outliers
=======================

Forty percent of the readings are outliers. A GP process and a noise process separate them; the rate
of outliers is inferred.
"""

import matplotlib.pyplot as plt
import numpy as np

from dagp import DAGP, GP, Noise, datasets, plot

data = datasets.noise_separation(outliers=0.4, random_state=0)
model = DAGP(processes=[GP(), Noise()], random_state=0).fit(data.X, data.y)
print(model.summary())

# %%
# The signal process alone, against the function that produced the data.

mean, std = model.processes_[0].predict(data.X_test, return_std=True)
ax = plot.assignment(model, data.X, data.y)
ax.plot(data.X_test, data.y_test, color="black", lw=1, label="truth")
ax.plot(data.X_test, mean, color=plot.colour(0), lw=2, label="signal process")
ax.legend()
print("RMSE", np.sqrt(np.mean((mean - data.y_test) ** 2)))

# %%
# The whole prediction is a mixture. Its highest-density regions follow the signal, with a wide
# remainder for the outliers.

plot.overview(model, data.X, data.y)
plt.show()
