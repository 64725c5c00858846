"""A fitted model as plain arrays with names, from which `dagp.deploy` predicts."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from sklearn.utils.validation import check_is_fitted

from dagp import deploy
from dagp.core.errors import StorageError
from dagp.core.linalg import whitener
from dagp.core.precision import numerics
from dagp.core.version import __version__
from dagp.files.atomic import replace
from dagp.model import kernels, means
from dagp.model.clutter import NoiseProcess, UniformProcess
from dagp.model.deep_stack import DeepStack
from dagp.model.gates import ConstantGate, Gate, GPGate
from dagp.model.gp import GPProcess, HeteroscedasticProcess
from dagp.model.kernel import Constant, Kernel, Product, Sum
from dagp.model.noise_shapes import GaussianShape, LaplaceShape, NoiseShape, StudentShape
from dagp.model.parameters import Parameter
from dagp.model.process import Process
from dagp.model.sparse_gp import LatentFunction, SparseGP
from dagp.predict.posterior import Posterior

if TYPE_CHECKING:
    from dagp.estimator import DAGP

Tree = dict[str, Any]

_NOISY = (GPProcess, HeteroscedasticProcess)

_KERNELS = (
    kernels.SquaredExponential,
    kernels.Matern12,
    kernels.Matern32,
    kernels.Matern52,
    kernels.RationalQuadratic,
    kernels.Periodic,
    kernels.Linear,
    kernels.White,
    Constant,
    Sum,
    Product,
)
"""Kernels that the predictor knows; subclasses of users may differ from them."""


def export(estimator: "DAGP", path: str | Path) -> Path:
    """Write the folder of `DAGP.export`."""
    check_is_fitted(estimator)
    if not estimator.columns_.plain:
        raise StorageError(
            "Cannot export a model that encodes categories or times: the predictor takes numbers. "
            "Encode these columns before the fit."
        )
    if len(estimator.posterior_.associations()) > 1:
        raise StorageError(
            "Cannot export a model that averages over several associations: the predictor has one. "
            'Fit it with posterior="best", or export one of alternatives_.'
        )
    folder = Path(path)
    names = getattr(estimator, "feature_names_in_", ())
    tree = {
        "format": deploy.FORMAT,
        "dagp": __version__,
        "flat": estimator.flat_,
        "features": np.array(list(map(str, names)), dtype=np.str_),
        **model_arrays(estimator.posterior_),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"Cannot make the folder {path}: {error.strerror}.") from error
    code = Path(deploy.__file__).read_bytes()
    replace(folder / "predictor.py", lambda file: file.write(code))
    replace(folder / "model.npz", lambda file: np.savez(file, allow_pickle=False, **_flat(tree)))
    return folder


def model_arrays(posterior: Posterior) -> Tree:
    """The arrays that predictions need."""
    model = posterior.model
    with numerics(posterior.dtype):
        return {
            "units": posterior.units._asdict(),
            "gate": _gate(model.gate),
            "processes": [_process(model.process(k)) for k in range(model.n_processes)],
        }


def _flat(tree: Any, name: str = "") -> dict[str, np.ndarray]:
    """A tree as one dictionary, with the path of each array as its name."""
    if isinstance(tree, list):
        tree = {str(i): part for i, part in enumerate(tree)}
    if not isinstance(tree, dict):
        array = np.asarray(tree)
        return {name: array.astype(np.float64) if array.dtype.kind == "f" else array}
    parts = (_flat(part, f"{name}.{key}".lstrip(".")) for key, part in tree.items())
    return {key: array for part in parts for key, array in part.items()}


def _refused(thing: Any) -> StorageError:
    return StorageError(
        f"Cannot export {type(thing).__name__}: only the processes, gates, kernels and means of "
        "this library can be computed without it."
    )


def _process(process: Process) -> Tree:
    if type(process) in (NoiseProcess, UniformProcess):
        found = process.components(process.marginals(process.project(jnp.zeros((1, 1)))))
        masses, flags = np.asarray(found.masses), np.zeros(len(found.masses), bool)
        flags[0] = process.is_uniform
        kept = masses > 0
        parts = {"means": found.mean[:, 0], "variances": found.variance[:, 0]}
        arrays = {name: np.asarray(part)[kept] for name, part in parts.items()}
        return {"masses": masses[kept], "flags": flags[kept], **arrays}
    if isinstance(process, GPProcess | HeteroscedasticProcess) and type(process) in _NOISY:
        tree = {"function": _function(process.latent), "noise": process.noise_variance()}
        if isinstance(process, HeteroscedasticProcess):
            tree["log_noise"] = _function(process.log_noise)
        return tree | _shape(process.shape)
    raise _refused(process)


def _shape(shape: NoiseShape) -> Tree:
    """Masses and variance factors of the normal components of heavy-tailed noise."""
    if type(shape) is GaussianShape:
        return {}
    if type(shape) not in (StudentShape, LaplaceShape):
        raise _refused(shape)
    return dict(zip(("shape_masses", "shape_factors"), shape.nodes(), strict=True))


def _gate(gate: Gate) -> Tree:
    if type(gate) is ConstantGate:
        return {"weights": np.asarray(gate.marginals(gate.project(jnp.zeros((1, 1)))).weights)[0]}
    if type(gate) is GPGate:
        return {"function": _function(gate.latent), **gate.refined().quadrature._asdict()}
    raise _refused(gate)


def _function(function: LatentFunction) -> Tree:
    if type(function) not in (SparseGP, DeepStack):
        raise _refused(function)
    points = function.points if isinstance(function, DeepStack) else np.zeros((1, 0))
    return {"layers": [_layer(gp) for gp in function.layers], "points": points}


def _layer(gp: SparseGP) -> Tree:
    Z, (mean, root) = gp.inducing.value, gp.q.mean_and_root()
    slope, intercept = _line(gp.mean, Z.shape[1])
    return {
        "inducing": Z,
        "whitener": whitener(gp.kernel(Z, Z)),
        "mean": mean,
        "root": root,
        "slope": slope,
        "intercept": intercept,
        "kernel": _kernel(gp.kernel),
    }


def _kernel(kernel: Kernel) -> Tree:
    if type(kernel) not in _KERNELS:
        raise _refused(kernel)
    tree: Tree = {"kind": type(kernel).__name__}
    if kernel.active is not None:
        tree["active"] = np.array(kernel.active, int)
    for field in dataclasses.fields(kernel):
        part = getattr(kernel, field.name)
        if isinstance(part, Kernel):
            tree[field.name] = _kernel(part)
        elif isinstance(part, Parameter):
            tree[field.name] = np.asarray(part.value)
    return tree


def _line(mean: means.Mean, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Slope (D, P or 1) and intercept (P or 1) of a mean function; all of ours are linear."""
    nothing = np.zeros((columns, 1)), np.zeros(1)
    if type(mean) in (means.Centred, means.Zero):
        return nothing
    if type(mean) is means.Constant:
        return nothing[0], np.atleast_1d(mean.constant.in_user_units)
    if type(mean) is means.Linear:
        slope = np.asarray(mean.slope.in_user_units)
        if slope.ndim < 2:
            slope = np.broadcast_to(slope, columns)[:, None]
        return slope, np.atleast_1d(mean.intercept.in_user_units)
    if type(mean) is means.Identity:
        return np.eye(columns), np.zeros(columns)
    if type(mean) is means.Projection:
        return np.asarray(mean.axes), np.zeros(np.shape(mean.axes)[1])
    if type(mean) is means.InUnits:
        slope, intercept = _line(mean.mean, columns)
        level = mean.x_centre @ slope + intercept - mean.y_centre
        return slope * mean.x_unit[:, None] / mean.y_unit, np.asarray(level / mean.y_unit)
    raise _refused(mean)
