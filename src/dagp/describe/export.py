"""Export of a fitted estimator to an xarray Dataset."""

import json
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

from dagp.files.modelfile import settings
from dagp.predict.labelled import dataset
from dagp.tables.validation import check_inputs, check_outputs, usable_rows

if TYPE_CHECKING:
    import xarray

    from dagp.estimator import DAGP

POINT, PROCESS = "point", "process"


def to_xarray(model: "DAGP", data: tuple[Any, Any] | None) -> "xarray.Dataset":
    """See `DAGP.to_xarray`."""
    each, shares = (POINT, PROCESS), model.responsibilities_
    rows, processes = shares.shape
    noise = np.stack([process.noise_std_ for process in model.processes_])
    noise, noisy = (noise[:, 0], PROCESS) if model.flat_ else (noise, (PROCESS, "output"))
    variables = {
        "responsibilities": (each, shares, "probability that the process produced the point"),
        "assignment": (POINT, model.assignment_, "most probable process"),
        "share": (PROCESS, [p.share_ for p in model.processes_], "share of the data"),
        "active": (PROCESS, model.active_, "whether the process is in use"),
        "noise_std": (noisy, noise, "standard deviation of an observation around the function"),
        "lower_bounds": ("step", model.lower_bounds_, "evidence lower bound (ELBO)"),
    }
    if any(process.degrees_ is not None for process in model.processes_):
        degrees = [np.nan if p.degrees_ is None else p.degrees_ for p in model.processes_]
        variables["degrees"] = (PROCESS, degrees, "degrees of freedom of Student-t noise")
    coordinates = {
        POINT: range(rows),
        PROCESS: range(processes),
        "kind": (PROCESS, [process.kind for process in model.processes_]),
        "noise": (PROCESS, [process.noise_ for process in model.processes_]),
    }
    if not model.flat_:
        coordinates["output"] = range(noise.shape[1])
    if data is not None:
        added, labels = _with_data(model, *data)
        variables |= added
        coordinates |= labels
    about = {
        "settings": json.dumps(settings(model), default=_plain),
        "lower_bound": float(model.lower_bound_),
        "converged": int(model.converged_),
        "n_iter": int(model.n_iter_),
    }
    return dataset(variables, coordinates, about)


def _with_data(model: "DAGP", X: Any, y: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Variables for the data and the predictions at them, and coordinates from their labels."""
    finite = model.missing != "drop"
    inputs = check_inputs(model, X, reset=False, finite=finite)
    outputs = check_outputs(y, len(inputs), finite=finite)
    used = np.full(len(inputs), True) if finite else usable_rows(inputs, outputs)
    _check_same(model, inputs, outputs, used)
    shape = (POINT, "output")[: outputs.ndim]
    functions = model.posterior_.mixture(inputs[used], noise=False, flat=model.flat_)
    alone = [functions.marginal(k) for k in range(len(model.processes_))]
    mean, std = np.full((2, len(used), len(alone), *outputs.shape[1:]), np.nan)
    mean[used] = np.stack([one.mean() for one in alone], axis=1)
    std[used] = np.sqrt(np.stack([one.variance() for one in alone], axis=1))
    gate = np.full((len(used), len(alone)), np.nan)
    gate[used] = model.posterior_.gate(inputs[used])
    variables = {
        "x": ((POINT, "feature"), inputs, "inputs"),
        "y": (shape, outputs, "outputs"),
        "weights": (
            (POINT, PROCESS),
            gate,
            "probability of the process at the input, before the output is known",
        ),
        "mean": ((POINT, PROCESS, *shape[1:]), mean, "mean of the function"),
        "std": ((POINT, PROCESS, *shape[1:]), std, "standard deviation of the function"),
    }
    names = getattr(model, "feature_names_in_", range(inputs.shape[1]))
    names = names if model.columns_.plain else model.columns_.names
    labels: dict[str, Any] = {"feature": list(names)}
    table: Any = nw.from_native(X, pass_through=True)
    targets: Any = nw.from_native(y, pass_through=True)
    index = nw.maybe_get_index(table) if isinstance(table, nw.DataFrame) else None
    if index is not None and index.nlevels == 1:
        labels[POINT] = index
    if isinstance(targets, nw.DataFrame) and not model.flat_:
        labels["output"] = targets.columns
    return variables, labels


def _check_same(model: "DAGP", X: np.ndarray, y: np.ndarray, used: np.ndarray) -> None:
    """Raise unless the rows can be those of the fit, judged by their number and range."""
    same_shape = np.array_equal(used, model.used_mask_) and (y.ndim == 1) == model.flat_
    extent = X[used].min(axis=0), X[used].max(axis=0)
    if not (same_shape and np.array_equal(extent, model.extent_)):
        raise ValueError(
            "data must be the X and y that the model was fitted to; for other inputs see "
            "predict_mixture(X).to_xarray()."
        )


def _plain(value: Any) -> Any:
    """JSON form of settings that are NumPy numbers and arrays, priors or kernels."""
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else repr(value)
