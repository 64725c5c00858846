"""Export to `xarray.Dataset`: arrays with named dimensions."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagp.core.version import __version__

if TYPE_CHECKING:
    import xarray

    from dagp.predict.mixture import Mixture


def dataset(
    variables: Mapping[str, tuple[Any, ...]],
    coordinates: Mapping[str, Any],
    about: Mapping[str, Any],
) -> "xarray.Dataset":
    """A dataset of variables, each with dimensions, values and description."""
    try:
        import xarray
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            "Named dimensions need xarray: pip install 'dagp[xarray]'.", name=missing.name
        ) from missing
    described = {
        name: (dims, values, {"long_name": words})
        for name, (dims, values, words) in variables.items()
    }
    return xarray.Dataset(described, coordinates, {"dagp": __version__, **about})


def mixture_dataset(mixture: "Mixture") -> "xarray.Dataset":
    """See `Mixture.to_xarray`."""
    points, components = mixture.weights.shape
    shape = ("point", "component", "output")[: mixture.means.ndim]
    coordinates = {
        "point": range(points),
        "component": range(components),
        "process": ("component", list(mixture.owner)),
        "uniform": ("component", list(mixture.uniform)),
    }
    if mixture.means.ndim == 3:
        coordinates["output"] = range(mixture.means.shape[2])
    variables = {
        "weights": (shape[:2], mixture.weights, "probability of the component"),
        "means": (shape, mixture.means, "mean of the component"),
        "variances": (shape, mixture.variances, "variance of the component"),
    }
    return dataset(variables, coordinates, {})
