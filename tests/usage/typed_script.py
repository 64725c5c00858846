"""A user's script for type checkers: the calls of the README and the documentation.

It is checked, not run; see `test_typing.py`.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from dagp import (
    DAGP,
    GP,
    Concrete,
    DeepGP,
    Gamma,
    HalfCauchy,
    LogNormal,
    Mixture,
    Noise,
    Uniform,
    datasets,
    fixed,
    kernels,
    means,
    parameter,
    plot,
    report,
)
from dagp.baselines import GPR, OMGP
from dagp.deploy import Predictor
from dagp.scoring import log_score

Numbers = npt.NDArray[np.float64]

# Kernels take numbers, several numbers, arrays, parameters and nothing.
matern = kernels.Matern52(lengthscale=2.0)
ard = kernels.SquaredExponential(lengthscale=[1.0, 2.0], variance=np.float64(3.0))
rough = kernels.Matern12(1) + kernels.Matern32(np.array([0.5, 2.0]), active=[0, 1])
smooth = parameter(prior=LogNormal(2.0, 0.5), tie="smoothness")
daily = kernels.Periodic(period=fixed(24.0), lengthscale=smooth, active=(0,))
rest = kernels.RationalQuadratic(alpha=2.0) + kernels.Linear(variance=1.0) + kernels.White(0.1)
trend = 2.0 * kernels.SquaredExponential() + kernels.Constant(1.0)
held: kernels.Matern52 = fixed(matern)

# Means and priors.
line = means.Linear(slope=[0.5], intercept=1.0)
priors = [
    GP(kernel=matern, mean=means.Constant(3.0), noise_std=0.1),
    GP(ard + rough, line, noise_prior=Gamma(2.0, 4.0)),
    GP(daily * rest, means.Zero(), noise_std=fixed(0.2), noise_gp=GP(trend)),
    DeepGP(layers=2, width=1, samples=8, noise_prior=HalfCauchy(0.1)),
    Noise(mean=0.0, std=fixed(2.0), shape="normal"),
    Uniform(low=-1.0, high=3.0),
]

# Fits.
data = datasets.noise_separation(outliers=0.4, random_state=0)
year = datasets.turbine(n=1000, random_state=np.random.default_rng(0))
model = DAGP(processes=[GP(), Noise()], random_state=0).fit(data.X, data.y)
counted = DAGP("auto", gate="constant", missing="drop", dtype="float32").fit(data.X, data.y)
paper = DAGP(2, GP(matern), DeepGP(), inference=Concrete(entropy=False), verbose=1)
several = DAGP(n_processes=4, inference="concrete", batch_size=1000, callbacks=[print])
model.fit(year.X, year.y, labels=np.full(1000, -1)).partial_fit(data.X, data.y)

# Predictions: the mean alone, or with the standard deviation.
mean: Numbers = model.predict(data.X_test)
centre, std = model.predict(data.X_test, return_std=True)
width: Numbers = centre + 2 * std
signal, spread = model.processes_[0].predict(data.X_test, return_std=True)
alone: Numbers = model.processes_[0].predict(data.X_test)
mixture: Mixture = model.predict_mixture(data.X_test, noise=False)
lower, upper = mixture.interval(0.9)
modes: list[Numbers] = mixture.modes()
first_region: tuple[float, float] = mixture.hdr(0.9)[0][0]
draws: Numbers = mixture.sample(3, random_state=0) + model.sample_y(data.X_test, 3)
shares: Numbers = model.predict_assignment(data.X) * model.responsibilities(data.X, data.y)
score: float = model.score(data.X, data.y) + model.log_score(data.X, data.y)
density: Numbers = model.score_samples(data.X, data.y)

# Fitted attributes, summaries and files.
busy = [p.kind for p, used in zip(model.processes_, model.active_, strict=True) if used]
noise: float = float(model.processes_[0].noise_std_[0]) + model.processes_[0].share_
text: str = model.summary(verbose=True) + str(model.explain([0.0], 2.5).process)
rows: Numbers = data.X[model.outliers(0.9)]
saved: Path = model.save("model.dagp", data=(data.X, data.y))
again: DAGP = DAGP.load(saved)
exported = Predictor(model.export("model"))
light: Numbers = exported.predict(data.X) + exported.predict(data.X, return_std=True)[0]
page: Path = report.write(model, data.X, data.y, "report.html", title="Pump")

# Plots return their axes.
axes = plot.posterior(model, data.X, data.y)
axes.set_title("posterior")
plot.gate(model, ax=axes).grid(True)
plot.data(data.X, data.y, data.process, ax=plot.bound(model)).legend()
plot.overview(model, data.X, data.y)[0].set_title("all")

# Baselines and scores.
rival = GPR(kernels.Matern32(lengthscale=1.0), random_state=0).fit(data.X, data.y)
rival_mean, rival_std = rival.predict(data.X, return_std=True)
rival_score: float = log_score(OMGP(random_state=0).fit(data.X, data.y), data.X, data.y)
