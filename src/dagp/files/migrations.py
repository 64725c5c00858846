"""Migrations of file descriptions from an older format to the next.

A migration works on the JSON description of a file, before objects are made. A released migration
never changes: a later renaming is a new format with a migration of its own.
"""

from collections.abc import Callable, Mapping
from typing import Any

_FORMAT_1_CLASSES = {
    "clutter.Noise": "prior/Noise",
    "clutter.NoiseProcess": "process/Noise",
    "clutter.NoiseTails": "process/NoiseTails",
    "clutter.Uniform": "prior/Uniform",
    "clutter.UniformProcess": "process/Uniform",
    "concrete.Concrete": "inference/Concrete",
    "concrete.ConcreteState": "inference/ConcreteState",
    "concrete.ConcreteStretch": "inference/ConcreteLoopState",
    "data.Units": "data/Units",
    "deep.DeepGP": "prior/DeepGP",
    "fitting.Stream": "inference/Stream",
    "gate.ConstantGate": "gate/Constant",
    "gate.GPGate": "gate/GP",
    "gate.Rule": "gate/Quadrature",
    "kernels.Constant": "kernel/Constant",
    "kernels.Linear": "kernel/Linear",
    "kernels.Matern12": "kernel/Matern12",
    "kernels.Matern32": "kernel/Matern32",
    "kernels.Matern52": "kernel/Matern52",
    "kernels.Periodic": "kernel/Periodic",
    "kernels.Product": "kernel/Product",
    "kernels.RationalQuadratic": "kernel/RationalQuadratic",
    "kernels.SquaredExponential": "kernel/SquaredExponential",
    "kernels.Sum": "kernel/Sum",
    "kernels.White": "kernel/White",
    "means.Centred": "mean/Centred",
    "means.Constant": "mean/Constant",
    "means.Identity": "mean/Identity",
    "means.InUnits": "mean/InUnits",
    "means.Linear": "mean/Linear",
    "means.Projection": "mean/Projection",
    "means.Zero": "mean/Zero",
    "model.DataAssociation": "model/DataAssociation",
    "optax.ScaleByAdamState": "optimiser/Adam",
    "parameters.Gamma": "density/Gamma",
    "parameters.HalfCauchy": "density/HalfCauchy",
    "parameters.LogNormal": "density/LogNormal",
    "parameters.Parameter": "parameter/Parameter",
    "posterior.Posterior": "model/Posterior",
    "processes.GP": "prior/GP",
    "processes.GPProcess": "process/GP",
    "processes.HeteroscedasticProcess": "process/Heteroscedastic",
    "sparse.Moments": "q/MeanFactor",
    "sparse.Natural": "q/Natural",
    "sparse.SparseGP": "gp/Sparse",
    "stack.DeepStack": "gp/DeepStack",
    "stochastic.Epochs": "inference/EpochState",
    "train.Result": "inference/Result",
    "train.State": "inference/State",
    "train.Stretch": "inference/LoopState",
}
"""Tags of the classes that format 1 (dagp 0.1) named by module and name."""
_FORMAT_1_FIELDS = {
    "gate/GP": {"rule": "quadrature"},
    "inference/ConcreteState": {"moments": "opt_state"},
    "inference/EpochState": {"quiet": "stalled"},
    "inference/State": {"moments": "opt_state"},
    "inference/Stream": {"moments": "opt_state"},
    "parameter/Parameter": {"share": "tie"},
    "process/Noise": {"even": "uniform"},
}
"""Fields renamed since format 1, by the tag of their class."""
_FORMAT_1_KEYS = {
    frozenset(["settings", "fitted", "weights"]): {"weights": "shares"},
    frozenset(["identity", "finished", "note"]): {"note": "progress"},
}
"""Dictionary keys renamed since format 1, by all keys of the dictionary."""


def _from_format_1(description: dict[str, Any]) -> dict[str, Any]:

    def renaming(name: str) -> tuple[str, Mapping[str, str]]:
        tag = _FORMAT_1_CLASSES.get(name, name)
        return tag, _FORMAT_1_FIELDS.get(tag, {})

    return {**description, "tree": _renamed(description["tree"], renaming)}


def as_format_1(tree: Any) -> Any:
    """An encoded tree in format 1, which identifies checkpoints of that format."""
    names = {tag: name for name, tag in _FORMAT_1_CLASSES.items()}

    def renaming(tag: str) -> tuple[str, Mapping[str, str]]:
        fields = _FORMAT_1_FIELDS.get(tag, {})
        return names.get(tag, tag), {new: old for old, new in fields.items()}

    return _renamed(tree, renaming)


def _renamed(node: Any, renaming: Callable[[str], tuple[str, Mapping[str, str]]]) -> Any:
    if isinstance(node, list):
        return [_renamed(item, renaming) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _renamed(value, renaming) for key, value in node.items()}
    if isinstance(node.get("fields"), dict):
        node["!"], names = renaming(node["!"])
        node["fields"] = {names.get(field, field): v for field, v in node["fields"].items()}
    elif node.get("!") == "dict" and all(isinstance(key, str) for key, _ in node["items"]):
        names = _FORMAT_1_KEYS.get(frozenset(key for key, _ in node["items"]), {})
        node["items"] = [[names.get(key, key), value] for key, value in node["items"]]
    return node


def _from_format_2(description: dict[str, Any]) -> dict[str, Any]:
    # Marginals of the gate are part of the state of a training run.
    return {**description, "tree": _with_field(description["tree"], "inference/State", "gate")}


def _from_format_3(description: dict[str, Any]) -> dict[str, Any]:
    # Columns that encode a category share a length scale, and columns can have roles.
    tree = _with_field(description["tree"], "parameter/Parameter", "entries")
    return {**description, "tree": _with_setting(tree, "columns")}


def _with_setting(node: Any, name: str, content: Any = None) -> Any:
    """An encoded tree in which the settings of all estimators have one more."""
    if isinstance(node, list):
        return [_with_setting(item, name, content) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _with_setting(value, name, content) for key, value in node.items()}
    if node.get("!") != "dict":
        return node
    items = node["items"]
    if not {"settings", "fitted", "shares"} <= {key for key, _ in items if isinstance(key, str)}:
        return node
    more = [[name, content]]
    node["items"] = [
        [key, {**value, "items": value["items"] + more} if key == "settings" else value]
        for key, value in items
    ]
    return node


def _from_format_4(description: dict[str, Any]) -> dict[str, Any]:
    # All noise was Gaussian.
    tree, gaussian = description["tree"], {"!": "shape/Gaussian", "fields": {}}
    for tag in ("prior/GP", "prior/DeepGP"):
        tree = _with_field(_with_field(tree, tag, "noise", "gaussian"), tag, "degrees")
    for tag in ("process/GP", "process/Heteroscedastic"):
        tree = _with_field(tree, tag, "shape", gaussian)
    return {**description, "tree": tree}


def _from_format_5(description: dict[str, Any]) -> dict[str, Any]:
    # Hyperparameters were taken as known.
    return {**description, "tree": _with_setting(description["tree"], "posterior", "best")}


def _with_field(node: Any, tag: str, field: str, content: Any = None) -> Any:
    """An encoded tree in which all objects of a class have one more field."""
    if isinstance(node, list):
        return [_with_field(item, tag, field, content) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _with_field(value, tag, field, content) for key, value in node.items()}
    if node.get("!") == tag:
        node["fields"] = {**node["fields"], field: content}
    return node


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: _from_format_1,
    2: _from_format_2,
    3: _from_format_3,
    4: _from_format_4,
    5: _from_format_5,
}
"""Migration from each format version to the next."""
