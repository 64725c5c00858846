"""
Pipelines, cross-validation and grid search
===========================================

``DAGP`` is a scikit-learn regressor and works with its tools. Only the score must be chosen with
care.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from dagp import DAGP, GP, Noise, datasets, plot
from dagp.scoring import log_score

data = datasets.noise_separation(outliers=0.3, n=190, random_state=0)
quick = {"n_init": 4, "tol": 1e-2, "random_state": 0}
model = DAGP(processes=[GP(), Noise()], **quick)
folds = KFold(4, shuffle=True, random_state=0)

# %%
# Which score?
# ------------
#
# ``score`` is R² of the mean, as scikit-learn expects of a regressor. It does not suit a mixture:
# held-out outliers cannot be predicted, so R² is low however good the model is. The mean log
# density measures how probable the held-out readings are under the predicted mixture, outliers
# included. ``log_score`` is the corresponding scorer.

scores = cross_validate(
    model, data.X, data.y, cv=folds, scoring={"R2": "r2", "log_density": log_score}
)
print("R²         ", scores["test_R2"].round(2))
print("log density", scores["test_log_density"].round(2))

# %%
# Grid search
# -----------
#
# Priors are plain values and can be searched over like any other setting. Here: one function, a
# function and clutter, or two functions. The ELBO ranks these from one fit each and without
# held-out data; cross-validation is an independent check.

candidates = {"GP": [GP()], "GP and Noise": [GP(), Noise()], "two GPs": [GP(), GP()]}
search = GridSearchCV(model, {"processes": list(candidates.values())}, scoring=log_score, cv=folds)
search.fit(data.X, data.y)
means = search.cv_results_["mean_test_score"]
for name, score in zip(candidates, means, strict=True):
    print(f"{name:14}{score:.3f}")

# %%
# Pipelines
# ---------
#
# Columns are standardised inside ``fit``, so no scaler is needed. Other steps may be: here a
# logarithm. ``log_score`` works on the whole pipeline. For other methods of the model, transform
# the rows by the steps before it.

pipeline = make_pipeline(FunctionTransformer(np.log), model)
pressure = np.exp(data.X)
pipeline.fit(pressure, data.y)
print("predictions:", pipeline.predict(pressure[:3]).round(2))
print("log density:", round(log_score(pipeline, pressure, data.y), 2))
fitted, rows = pipeline[-1], pipeline[:-1].transform(pressure)
print("processes:  ", fitted.responsibilities(rows, data.y)[:3].round(2).tolist())

# %%
# The held-out log density of each candidate, and the best model. Two GPs score nearly as high: the
# second one becomes a broad band that covers the outliers. The bars are the spread over the folds,
# which is mostly due to the number of outliers in a fold, and so common to all.

_, (left, right) = plt.subplots(1, 2, figsize=(9, 4), width_ratios=(2, 3), layout="constrained")
left.errorbar(
    range(len(candidates)), means, search.cv_results_["std_test_score"], fmt="o", capsize=4
)
left.set_xticks(range(len(candidates)), list(candidates))
left.set(ylabel="held-out log density", xlim=(-0.5, 2.5), title="four folds")
plot.posterior(search.best_estimator_, ax=right)
plot.assignment(search.best_estimator_, data.X, data.y, ax=right)
right.set_title(f"best: {list(candidates)[search.best_index_]}", pad=20)
plt.show()
