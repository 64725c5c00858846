"""Exported models predict as DAGP does, with NumPy alone."""

import subprocess
import sys
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
import pytest

from dagp import DAGP, GP, DeepGP, Noise, StorageError, Uniform, datasets, kernels, means
from dagp.core.precision import numerics
from dagp.deploy import Predictor
from dagp.inference.standardize import Units
from dagp.model.association import DataAssociation
from dagp.model.clutter import NoiseProcess
from dagp.model.gates import ConstantGate
from dagp.model.process import BuildContext
from dagp.model.variational import DiagonalGaussian, NaturalGaussian
from dagp.predict.posterior import Posterior
from dagp.predict.process import fitted_process
from dagp.tables.columns import Columns
from dagp.tables.kinds import Number

M = 5


class Case(NamedTuple):
    """A model that is not trained: what is exported does not depend on how it came about."""

    processes: tuple
    gate: object = None
    columns: int = 1
    outputs: int = 1
    standardize: bool = True
    uniform: bool = False


ALL = (
    kernels.SquaredExponential(lengthscale=3.0)
    + kernels.Matern12(2.0, 0.3, active=[0])
    + kernels.Matern32(lengthscale=[2.0, 3.0]) * kernels.Linear(variance=[0.1, 0.2])
    + kernels.Matern52(active=[1]) * kernels.Periodic(period=2.5, active=[0])
    + 0.5 * kernels.RationalQuadratic(alpha=1.5)
    + kernels.White(0.2)
    + kernels.Constant(0.7)
)
CASES = {
    "signal and noise": Case((GP(), Noise())),
    "uniform noise": Case((GP(), Noise()), uniform=True),
    "uniform": Case((GP(kernels.Matern52(), noise_std=0.3), Uniform(-1.0, 9.0)), "constant"),
    "one process": Case((GP(),)),
    "three processes": Case((GP(), GP(kernels.Matern32()), Noise(std=2.0))),
    "heteroscedastic": Case((GP(noise_gp=GP()), GP())),
    "heavy tails": Case((GP(noise="student"), GP(noise="laplace"))),
    "heavy tails that vary": Case((GP(noise="student", noise_gp=GP()), DeepGP(noise="laplace"))),
    "all kernels": Case((GP(ALL), GP()), GP(kernels.Matern52()), columns=2),
    "means": Case(
        (
            GP(mean=means.Linear([0.5, -0.2], 1.0)),
            GP(mean=means.Constant(3.0)),
            GP(mean=means.Zero()),
        ),
        columns=2,
    ),
    "several outputs": Case((GP(), Noise(), Uniform()), columns=2, outputs=3),
    "deep": Case((DeepGP(layers=3), DeepGP(width=2, noise_gp=GP())), DeepGP(), columns=2),
    "not standardised": Case((GP(), Noise()), standardize=False),
}


def with_random_q(tree, rng):
    """A tree of a model with q far from the prior."""

    def changed(node):
        if isinstance(node, NaturalGaussian):
            factor = rng.standard_normal(node.precision.shape)
            precision = node.precision + factor @ np.swapaxes(factor, -1, -2)
            return NaturalGaussian(precision, 3 * rng.standard_normal(node.shift.shape))
        if isinstance(node, DiagonalGaussian):
            raw = rng.standard_normal(np.shape(node.mean.raw))
            return eqx.tree_at(lambda q: q.mean.raw, node, raw)
        return node

    stops = (NaturalGaussian, DiagonalGaussian)
    return jax.tree.map(changed, tree, is_leaf=lambda node: isinstance(node, stops))


def model_of(case):
    """An estimator with the posterior of a case, in units that are not one."""
    rng = np.random.default_rng(0)
    D, P = case.columns, case.outputs
    units = Units(rng.normal(size=D), 1 + rng.random(D), 5 * rng.normal(size=P), 2 + rng.random(P))
    if not case.standardize:
        units = Units(np.zeros(D), np.ones(D), np.zeros(P), np.ones(P))
    context = BuildContext(
        *units,
        y_low=np.full(P, -2.0),
        y_high=np.full(P, 2.0),
        inducing=rng.uniform(-2, 2, (M, D)),
        lengthscale=1.0,
        noise_std=0.2,
        uniform=case.uniform,
    )
    with numerics():
        built = [p.deepened(p.build(context), context) for p in case.processes]
        if case.gate == "constant":
            gate = ConstantGate(np.log(np.arange(1.0, 1 + len(built))))
        else:
            prior = case.gate or GP()
            gate = prior.deepened_gate(prior.build_gate(context, len(built)), context)
        association = DataAssociation.assemble(
            [with_random_q(process, rng) for process in built], with_random_q(gate, rng)
        )
    posterior = Posterior(jax.tree.map(np.asarray, association), units)
    model = DAGP()
    model.flat_, model.posterior_, model.n_features_in_ = P == 1, posterior, D
    model.columns_, model.target_names_ = Columns(tuple(map(Number, map(str, range(D))))), None
    model.processes_ = [fitted_process(model, posterior, k, 0.5) for k in range(len(built))]
    return model


def rows_of(case):
    """Rows inside and far outside the range of the inducing points, more than one chunk of them."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-4, 4, (40, case.columns))
    X[-4:] *= 50
    return np.tile(X, (30, 1)), 5 * rng.standard_normal((1200, case.outputs))


ALONE = """
import sys
for name in ("jax", "dagp", "scipy", "sklearn", "equinox"):
    sys.modules[name] = None
import numpy as np
sys.path.insert(0, sys.argv[1])
from predictor import Predictor
rows = np.load(sys.argv[1] + "/rows.npz")
X, y = rows["X"], rows["y"]
model = Predictor()
mean, std = model.predict(X, return_std=True)
first, first_std = model.predict_process(X, 0, return_std=True)
np.savez(sys.argv[1] + "/found.npz", mean=mean, std=std, alone=model.predict(X), first=first,
    first_std=first_std, gate=model.predict_assignment(X), density=model.score_samples(X, y),
    responsibilities=model.responsibilities(X, y))
assert not {"jax", "dagp"} & {name for name, module in sys.modules.items() if module is not None}
"""


@pytest.mark.parametrize("name", CASES)
def test_a_process_without_jax_predicts_the_same(name, tmp_path):
    case = CASES[name]
    model, (X, y) = model_of(case), rows_of(case)
    y = y[:, 0] if model.flat_ else y
    folder = model.export(tmp_path / "model")
    np.savez(folder / "rows.npz", X=X, y=y)
    subprocess.run([sys.executable, "-c", ALONE, str(folder)], check=True, cwd=tmp_path)
    with np.load(folder / "found.npz") as arrays:
        found = dict(arrays)
    mean, std = model.predict(X, return_std=True)
    first, first_std = model.processes_[0].predict(X, return_std=True)
    expected = {
        "mean": mean,
        "std": std,
        "alone": mean,
        "first": first,
        "first_std": first_std,
        "gate": model.predict_assignment(X),
        "density": model.score_samples(X, y),
        "responsibilities": model.responsibilities(X, y),
    }
    for key, value in expected.items():
        assert found[key].shape == value.shape
        np.testing.assert_allclose(found[key], value, rtol=1e-8, atol=1e-8, err_msg=key)


def test_the_cases_have_the_kinds_they_are_named_after():
    found = {name: model_of(case).posterior_.model for name, case in CASES.items()}
    assert isinstance(found["uniform noise"].process(1), NoiseProcess)
    assert found["uniform noise"].process(1).is_uniform
    assert not found["signal and noise"].process(1).is_uniform
    assert isinstance(found["uniform"].gate, ConstantGate)
    assert len(found["deep"].process(0).function.layers) == 3
    kinds = {type(node) for node in _kernels(found["all kernels"].process(0).function.kernel)}
    assert {getattr(kernels, name) for name in kernels.__all__} - kinds == {kernels.Kernel}


def _kernels(kernel):
    yield kernel
    if isinstance(kernel, kernels.Sum | kernels.Product):
        yield from _kernels(kernel.first)
        yield from _kernels(kernel.second)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A model that was fitted to a table, and its export."""
    pd = pytest.importorskip("pandas")
    data = datasets.noise_separation(outliers=0.2, n=60, random_state=0)
    frame = pd.DataFrame(data.X, columns=["wind"])
    model = DAGP(processes=[GP(), Noise()], n_init=1, tol=1e-1, inducing=7, random_state=0)
    model.fit(frame, data.y)
    return model, frame, data.y, model.export(tmp_path_factory.mktemp("folder") / "a" / "b")


def test_a_fitted_model_predicts_the_same(fitted):
    model, frame, y, folder = fitted
    for path in (folder, str(folder), folder / "model.npz"):
        exported = Predictor(path)
        np.testing.assert_allclose(exported.predict(frame), model.predict(frame), atol=1e-8)
    found = exported.responsibilities(frame, y)
    np.testing.assert_allclose(found, model.responsibilities(frame, y), atol=1e-8)


def test_single_precision_is_as_close_as_it_is_precise(tmp_path):
    data = datasets.noise_separation(outliers=0.2, n=60, random_state=0)
    settings = {"n_init": 1, "tol": 1e-1, "inducing": 7, "random_state": 0, "dtype": "float32"}
    model = DAGP(processes=[GP(), Noise()], **settings).fit(data.X, data.y)
    exported = Predictor(model.export(tmp_path / "model"))
    np.testing.assert_allclose(exported.predict(data.X), model.predict(data.X), atol=1e-3)


def test_wrong_rows_are_refused(fitted):
    _, frame, y, folder = fitted
    exported = Predictor(folder)
    X = frame.to_numpy()
    with pytest.raises(ValueError, match=r"columns \['wind'\], got \['power'\]"):
        exported.predict(frame.rename(columns={"wind": "power"}))
    with pytest.raises(ValueError, match=r"shape \(rows, 1\), got \(60, 2\)"):
        exported.predict(np.hstack([X, X]))
    with pytest.raises(ValueError, match=r"first in row 3"):
        exported.predict(np.where(np.arange(60)[:, None] == 3, np.nan, X))
    with pytest.raises(ValueError, match="y must be numbers"):
        exported.responsibilities(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="process must be from 0 to 1, got 2"):
        exported.predict_process(X, 2)


def test_an_export_of_another_format_is_refused(fitted, tmp_path):
    with np.load(fitted[3] / "model.npz") as arrays:
        changed = dict(arrays) | {"format": np.array(99)}
    np.savez(tmp_path / "model.npz", **changed)
    with pytest.raises(ValueError, match="format 99, this predictor reads 1"):
        Predictor(tmp_path)


class Other(kernels.SquaredExponential):
    """A kernel of a user, which the predictor does not know."""


def test_what_the_predictor_does_not_know_is_refused(tmp_path):
    model = model_of(Case((GP(Other()),)))
    with pytest.raises(StorageError, match="Cannot export Other: only"):
        model.export(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_model_of_encoded_columns_is_refused(tmp_path):
    pd = pytest.importorskip("pandas")
    data = datasets.noise_separation(outliers=0.0, n=60, random_state=0)
    frame = pd.DataFrame({"wind": data.X[:, 0], "site": ["north", "south"] * 30})
    model = DAGP(1, n_init=1, tol=1e-1, inducing=7, random_state=0).fit(frame, data.y)
    with pytest.raises(StorageError, match="encodes categories or times"):
        model.export(tmp_path / "model")


def test_a_file_in_the_place_of_the_folder_is_refused(fitted, tmp_path):
    (tmp_path / "model").write_text("")
    with pytest.raises(StorageError, match="Cannot make the folder"):
        fitted[0].export(tmp_path / "model")


def test_the_predictor_imports_neither_jax_nor_the_rest_of_the_library():
    code = "import sys; sys.modules['jax'] = None; from dagp.deploy import Predictor"
    subprocess.run([sys.executable, "-c", code], check=True)
