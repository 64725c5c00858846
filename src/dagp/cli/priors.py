"""Builds kernels, means, processes and gates from the plain values of options and config files."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from dagp.cli.app import InputError
from dagp.cli.spelling import listed, suggestion
from dagp.core.text import quoted
from dagp.model.clutter import Noise, Uniform
from dagp.model.deep import DeepGP
from dagp.model.gp import GP
from dagp.model.kernel import Constant, Kernel, Product, Sum
from dagp.model.kernels import (
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    SquaredExponential,
    White,
)
from dagp.model.means import Constant as ConstantMean
from dagp.model.means import Linear as LinearMean
from dagp.model.means import Mean, Zero
from dagp.model.noise_shapes import NoiseName
from dagp.model.parameters import Gamma, HalfCauchy, LogNormal, Prior, fixed, parameter
from dagp.model.process import ProcessPrior

KERNELS: dict[str, Any] = {
    "squared-exponential": SquaredExponential,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "rational-quadratic": RationalQuadratic,
    "periodic": Periodic,
    "linear": Linear,
    "white": White,
    "constant": Constant,
}
MEANS: dict[str, Any] = {"zero": Zero, "constant": ConstantMean, "linear": LinearMean}
DENSITIES: dict[str, Any] = {"log-normal": LogNormal, "gamma": Gamma, "half-cauchy": HalfCauchy}
PROCESSES: dict[str, Any] = {"gp": GP, "deep-gp": DeepGP, "noise": Noise, "uniform": Uniform}

NOISES: tuple[str, ...] = get_args(NoiseName)


class Place(NamedTuple):
    """Where a value is stated, for errors, and the inputs that it may name."""

    where: str
    inputs: Sequence[str] = ()

    def error(self, message: str) -> InputError:
        """An error that names the place."""
        return InputError(f"{self.where}: {message.rstrip('.')}.")

    def within(self, key: str) -> "Place":
        """The place of a part of the value."""
        return self._replace(where=f"{self.where}, {key}")


def kernel(spec: Any, place: Place) -> Kernel:
    """A kernel by its name, as a table with a kind and parameters, or as a sum or product."""
    if isinstance(spec, Kernel):
        return spec
    if isinstance(spec, Mapping) and (set(spec) & {"sum", "product"}):
        return _combined(spec, place)
    kind, values = _kind(spec, KERNELS, "kernel", place)
    cls = KERNELS[kind]
    _check_keys(values, [field.name for field in dataclasses.fields(cls)], place)
    arguments = {k: _quantity(v, place.within(k)) for k, v in values.items() if k != "active"}
    if "active" in values:
        arguments["active"] = _active(values["active"], place.within("active"))
    return _built(cls, arguments, place)


def gate(spec: Any, place: Place) -> Any:
    """The gate: "gp", "constant", or a table of a GP with `layers` and the like."""
    if spec in ("gp", "constant"):
        return None if spec == "gp" else "constant"
    if not isinstance(spec, Mapping):
        raise place.error(f"expected 'gp', 'constant' or a table of a GP, got {quoted(spec)}")
    return process({"kind": "gp", **spec}, place)


def process(spec: Mapping[str, Any], place: Place) -> Any:
    """The prior of a process, from a table with its kind and settings."""
    kind, values = _kind(spec, PROCESSES, "process", place)
    if kind == "gp" and {"layers", "width", "inner_kernel", "samples"} & set(values):
        # One layer is a plain GP, whatever the other settings of deep ones are.
        kind = "deep-gp" if values.get("layers", 2) != 1 else "gp"
        values = values if kind == "deep-gp" else {k: values[k] for k in values if k != "layers"}
    cls = PROCESSES[kind]
    _check_keys(values, [field.name for field in dataclasses.fields(cls)], place)
    return _built(cls, {k: _setting(k, v, place.within(k)) for k, v in values.items()}, place)


def processes(specs: Iterable[Mapping[str, Any]], place: Place) -> list[ProcessPrior]:
    """The priors of a list of tables, each repeated `count` times."""
    priors = []
    for number, spec in enumerate(specs, 1):
        here = place._replace(where=f"{place.where} {number}")
        count = spec.get("count", 1)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise here.error(f"count must be a whole number of at least 1, got {quoted(count)}")
        prior = process({k: v for k, v in spec.items() if k != "count"}, here)
        priors += [prior] * count
    return priors


def _setting(key: str, value: Any, place: Place) -> Any:
    """One setting of a process, by its name."""
    if key in ("kernel", "inner_kernel"):
        return kernel(value, place)
    if key.endswith("_prior"):
        return _density(value, place)
    if key == "noise_gp":
        return _noise_gp(value, place)
    if key == "mean" and isinstance(value, str | Mapping):
        return _mean(value, place)
    if key in ("noise_std", "std", "degrees"):
        return _quantity(value, place)
    if key == "noise" and value not in NOISES:
        near = suggestion(str(value), NOISES)
        raise place.error(f"there is no noise {quoted(value)}.{near} There are {listed(NOISES)}")
    return value


def _noise_gp(value: Any, place: Place) -> GP | None:
    """True, or a table with the kernel and mean of the log noise."""
    if isinstance(value, bool):
        return GP() if value else None
    if not isinstance(value, Mapping):
        raise place.error(f"expected true or a table with a kernel, got {quoted(value)}")
    _check_keys(value, ["kernel", "mean"], place)
    return GP(**{k: _setting(k, v, place.within(k)) for k, v in value.items()})


def _mean(spec: Any, place: Place) -> Mean | None:
    if spec == "centred":
        return None
    kind, values = _kind(spec, MEANS, "mean function", place)
    _check_keys(values, [field.name for field in dataclasses.fields(MEANS[kind])], place)
    real = {k: _quantity(v, place.within(k), support="real") for k, v in values.items()}
    return _built(MEANS[kind], real, place)


def _density(spec: Any, place: Place) -> Prior:
    kind, values = _kind(spec, DENSITIES, "prior", place)
    _check_keys(values, ["median", "std", "shape", "rate"], place)
    return _built(DENSITIES[kind], values, place)


def _combined(spec: Mapping[str, Any], place: Place) -> Kernel:
    """Sum or product of a list of kernels."""
    (name,) = _check_keys(spec, ["sum", "product"], place)[:1]
    parts = spec[name]
    if len(spec) != 1 or not isinstance(parts, list) or len(parts) < 2:
        raise place.error("expected either sum or product, with a list of two or more kernels")
    whole, *others = (kernel(part, place.within(f"{name} {i}")) for i, part in enumerate(parts, 1))
    for other in others:
        whole = (Sum if name == "sum" else Product)(first=whole, second=other)
    return whole


def _quantity(value: Any, place: Place, support: Any = "positive") -> Any:
    """A number or list of numbers, or a table that also fixes it or gives it a prior or a tie."""
    if not isinstance(value, Mapping):
        return _built(lambda: parameter(value, support=support), {}, place)
    _check_keys(value, ["value", "fixed", "prior", "tie"], place)
    prior = _density(value["prior"], place.within("prior")) if "prior" in value else None
    more = {"support": support, "prior": prior, "tie": value.get("tie")}
    found = _built(lambda: parameter(value.get("value"), **more), {}, place)
    return fixed(found) if value.get("fixed") else found


def _active(value: Any, place: Place) -> tuple[int, ...]:
    """Input columns of a kernel, by name or number from 0."""
    if not isinstance(value, list):
        raise place.error(f"expected a list of input columns, got {quoted(value)}")
    found = []
    for one in value:
        if isinstance(one, str) and one not in place.inputs:
            near = suggestion(one, place.inputs)
            raise place.error(
                f"{quoted(one)} is not an input.{near} Inputs: {listed(place.inputs)}"
            )
        found.append(list(place.inputs).index(one) if isinstance(one, str) else one)
    return tuple(found)


def _kind(
    spec: Any, known: Mapping[str, Any], what: str, place: Place
) -> tuple[str, dict[str, Any]]:
    """Name of a kind in the spelling of `known`, and the other values of its table."""
    if not isinstance(spec, str | Mapping):
        raise place.error(
            f"expected the name of a {what} or a table with its kind, got {quoted(spec)}"
        )
    table = {"kind": spec} if isinstance(spec, str) else dict(spec)
    if "kind" not in table:
        raise place.error(f"the {what} needs a kind: {listed(known)}")
    given = str(table.pop("kind"))
    simple = {_simplified(name): name for name in known} | {"rbf": "squared-exponential"}
    name = simple.get(_simplified(given), "")
    if name not in known:
        near = suggestion(given, known)
        raise place.error(f"there is no {what} {quoted(given)}.{near} There are {listed(known)}")
    return name, table


def _simplified(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _check_keys(values: Mapping[str, Any], known: Sequence[str], place: Place) -> list[str]:
    for key in values:
        if key not in known:
            near = suggestion(key, known)
            allowed = f" Known are {listed(known)}" if known else " It has none"
            raise place.error(f"unknown key {quoted(key)}.{near}{allowed}")
    return list(values)


def _built(make: Any, arguments: Mapping[str, Any], place: Place) -> Any:
    try:
        return make(**arguments)
    except (TypeError, ValueError) as error:
        raise place.error(str(error)) from error
