"""The estimator that the settings of `dagp fit` describe."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from dagp.cli import priors
from dagp.cli.app import InputError
from dagp.cli.config import Settings
from dagp.cli.priors import Place
from dagp.cli.progress import with_option_names
from dagp.core.random import as_random_state
from dagp.core.text import quoted
from dagp.estimator import DAGP
from dagp.inference.concrete import Concrete
from dagp.model.clutter import Noise
from dagp.tables.settings import AUTO_PROCESSES, check_settings

_KEYS = {
    "kernel": "kernel",
    "noise": "noise",
    "varying_noise": "noise_gp",
    "depth": "layers",
}
"""Settings of all processes, and the keys of one process that they stand for."""


def build_estimator(settings: Settings, inputs: Sequence[str]) -> DAGP:
    """The estimator of these settings, for a table with these inputs."""
    count, processes = _processes(settings, inputs)
    gate = settings.get("gate")
    arguments = {
        "gate": None if gate is None else priors.gate(gate, Place(settings.where("gate"), inputs)),
        "inducing": _positions(settings.get("inducing", "auto")),
        "inference": _inference(settings),
    }
    names = {"starts": "n_init", "seed": "random_state"}
    same = ("max_iter", "tol", "batch_size", "standardize", "dtype", "missing", "posterior")
    arguments |= {name: settings[name] for name in same if name in settings}
    arguments |= {name: settings[key] for key, name in names.items() if key in settings}
    return DAGP(count, processes, **{"random_state": 0, **arguments})


def process_count(model: DAGP) -> int:
    """The number of processes of an estimator; raises InputError for invalid settings."""
    try:
        as_random_state(model.random_state)
        return len(check_settings(model))
    except ValueError as error:
        raise InputError(with_option_names(str(error))) from error


def _processes(settings: Settings, inputs: Sequence[str]) -> tuple[int | Literal["auto"], Any]:
    """Number and priors of the processes, as arguments of `DAGP`."""
    stated = settings.get("processes", 2)
    clutter = [Noise()] if settings.get("noise_process") else []
    common = {_KEYS[key]: settings[key] for key in _KEYS if key in settings}
    if "kernel" in common:
        place = Place(settings.where("kernel"), inputs)
        common["kernel"] = priors.kernel(common["kernel"], place)
    if isinstance(stated, list):
        # What an option says holds for every process, what the file says for those that are silent.
        forced = {_KEYS[key]: common[_KEYS[key]] for key in _KEYS if key in settings.from_options}
        specs = [_with_common(spec, common, forced) for spec in stated]
        where = f"{settings.source}, [[model.processes]]"
        found = priors.processes(specs, Place(where, inputs))
        return len(found), found + clutter
    count = AUTO_PROCESSES if stated == "auto" else stated
    prior = priors.process({"kind": "gp", **common}, Place(settings.where("depth"), inputs))
    return stated, [prior] * count + clutter if clutter else prior


def _with_common(
    spec: Mapping[str, Any], common: Mapping[str, Any], forced: Mapping[str, Any]
) -> dict[str, Any]:
    """A process with the settings of all processes, if it is a GP."""
    is_gp = str(spec.get("kind", "gp")).lower().replace("_", "-") in ("gp", "deep-gp", "deepgp")
    return {"kind": "gp", **(common if is_gp else {}), **spec, **(forced if is_gp else {})}


def _positions(inducing: Any) -> Any:
    return np.array(inducing, dtype=float) if isinstance(inducing, list) else inducing


def _inference(settings: Settings) -> Any:
    stated = settings.get("inference", "collapsed")
    if isinstance(stated, str):
        return stated
    pair = {"temperature": tuple(stated["temperature"])} if "temperature" in stated else {}
    try:
        return Concrete(**{**stated, **pair})
    except TypeError as error:
        known = "temperature, entropy, learning_rate, batch_size"
        where = settings.where("inference")
        raise InputError(f"{where}: unknown key in {quoted(stated)}; known are {known}.") from error
