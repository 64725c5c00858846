"""Problem: standardised data and priors, and the models that are built from them."""

from typing import Any, NamedTuple

import jax
import numpy as np

from dagp.core.sharding import to_host
from dagp.core.text import quoted
from dagp.core.typing import Float
from dagp.inference.concrete import with_natural_q
from dagp.inference.standardize import Sample, Units
from dagp.model.association import DataAssociation
from dagp.model.gates import ConstantGate, Gate, GatePrior
from dagp.model.gp import GP
from dagp.model.kernels import SquaredExponential
from dagp.model.parameters import LogNormal, parameter
from dagp.model.process import BuildContext, Deepening, ProcessPrior

DEFAULT_GATE = GP(SquaredExponential(variance=parameter(None, prior=LogNormal(median=4.0))))
"""Gate functions are log odds, for which ±5 is already close to certainty."""


class Problem(NamedTuple):
    """Input of a fit: standardised data and priors."""

    sample: Sample
    units: Units
    priors: tuple[ProcessPrior, ...]
    gate: GatePrior | str | None
    inducing: Float[np.ndarray, "M D"]
    groups: tuple[int, ...] | None = None
    """The input that each column belongs to; None: a column each (see `BuildContext`)."""

    @property
    def n_processes(self) -> int:
        return len(self.priors)

    @property
    def n_inputs(self) -> int:
        return self.sample.X.shape[1] if self.groups is None else max(self.groups) + 1

    @property
    def clutter(self) -> tuple[bool, ...]:
        return tuple(prior.clutter for prior in self.priors)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Priors of the processes in words: processes of one kind may exchange their names."""
        return tuple(repr(prior) for prior in self.priors)

    @property
    def plain(self) -> bool:
        """Whether every function has a single layer and Gaussian noise that is constant."""

        def is_plain(prior: ProcessPrior) -> bool:
            return type(prior) is GP and prior.noise_gp is None and prior.noise == "gaussian"

        return all(prior.clutter or is_plain(prior) for prior in self.priors)

    @property
    def single_layers(self) -> bool:
        """Whether all functions have one layer. With other inducing inputs, steps on every q then
        find the same functions again."""
        gate = self.gate is None or self.gate == "constant" or type(self.gate) is GP
        return gate and all(prior.clutter or type(prior) is GP for prior in self.priors)


class Start(NamedTuple):
    """Initial responsibilities of a run, and hyperparameters that the user did not give."""

    kind: str
    responsibilities: Float[np.ndarray, "N K"]
    lengthscale: float = 0.6
    noise_std: float = 0.1
    uniform: bool = False
    """Whether clutter of unknown shape starts as uniform."""


def build_context(problem: Problem, start: Start) -> BuildContext:
    """The context in which the priors build their processes."""
    return BuildContext(
        *problem.units,
        y_low=np.nanmin(problem.sample.y, axis=0),
        y_high=np.nanmax(problem.sample.y, axis=0),
        inducing=problem.inducing,
        lengthscale=start.lengthscale,
        noise_std=start.noise_std,
        uniform=start.uniform,
        groups=problem.groups,
    )


def build_gate(prior: GatePrior | str | None, context: BuildContext, n_processes: int) -> Gate:
    """The trainable gate of a prior, for standardised data."""
    if n_processes == 1 or prior == "constant":
        return ConstantGate(np.zeros(n_processes))
    prior = DEFAULT_GATE if prior is None else prior
    if not isinstance(prior, GatePrior):
        raise ValueError(
            'gate must be None, "constant", a GP, a DeepGP or another GatePrior, got '
            f"{quoted(prior)}."
        )
    return prior.build_gate(context, n_processes)


def initial_gate(problem: Problem, start: Start) -> Gate:
    """The gate of the model of a start, without its processes, which take longer to build."""
    gate = build_gate(problem.gate, build_context(problem, start), problem.n_processes)
    return jax.tree.map(np.asarray, gate)


def build(problem: Problem, start: Start) -> DataAssociation:
    """The model of a start."""
    context = build_context(problem, start)
    processes = [prior.build(context) for prior in problem.priors]
    return DataAssociation.assemble(processes, build_gate(problem.gate, context, len(processes)))


def with_inducing(problem: Problem, start: Start, trained: DataAssociation) -> DataAssociation:
    """The model of a start, with the hyperparameters of one trained with fewer inducing inputs."""
    fresh = build(problem, start)
    if jax.tree.structure(fresh) != jax.tree.structure(trained):
        fresh = deepened(problem, start, fresh, Deepening())
    # Inducing inputs and q alone have shapes that depend on their number.
    return jax.tree.map(
        lambda new, old: to_host(old) if np.shape(new) == np.shape(old) else new, fresh, trained
    )


class Resumed(NamedTuple):
    """A trained model, to be trained further."""

    model: DataAssociation
    """In the shapes of the problem."""
    before: DataAssociation | None
    """With the inducing inputs it had, if they were others: its q, and with it the association, is
    known for these alone."""
    anew: tuple[str, ...]
    """Names of the parts that start afresh, because they had other priors."""


def resumed(problem: Problem, previous: DataAssociation) -> Resumed:
    """A trained model to be trained further, with the range of clutter from the new data.

    Of parts with another number of inducing inputs, the hyperparameters are kept.
    """
    start = Start("warm", np.zeros((0, 0)), 1.0, 1.0)
    context = build_context(problem, start)
    fresh = with_natural_q(deepened(problem, start, build(problem, start), Deepening()))
    previous = with_natural_q(previous)
    pairs, anew = [], []
    for k, prior in enumerate(problem.priors):
        new, old = fresh.process(k), previous.process(k)
        alike = _alike(new, old)
        pairs.append((new, prior.resumed(old, context) if alike else new))
        anew += [] if alike else [f"process {k}"]
    alike = _alike(fresh.gate, previous.gate)
    pairs.append((fresh.gate, previous.gate if alike else fresh.gate))
    anew += [] if alike else ["the gate"]
    *processes, gate = (_carried_over(new, old) for new, old in pairs)
    model = DataAssociation.assemble(processes, gate)
    *trained, old_gate = (old for _, old in pairs)
    if all(kept is old for kept, old in zip((*processes, gate), (*trained, old_gate), strict=True)):
        return Resumed(model, None, tuple(anew))
    return Resumed(model, DataAssociation.assemble(trained, old_gate), tuple(anew))


def _alike(fresh: Any, trained: Any) -> bool:
    """Whether two parts are of one kind, with any number of inducing inputs."""
    return jax.tree.structure(fresh) == jax.tree.structure(trained)


def _carried_over(fresh: Any, trained: Any) -> Any:
    """A trained part in the shapes of a fresh one of its kind; what has other shapes is fresh."""
    pairs = zip(jax.tree.leaves(fresh), jax.tree.leaves(trained), strict=True)
    if all(np.shape(a) == np.shape(b) for a, b in pairs):
        return trained
    return jax.tree.map(lambda a, b: b if np.shape(a) == np.shape(b) else a, fresh, trained)


def deepened(
    problem: Problem, start: Start, plain: DataAssociation, deepening: Deepening
) -> DataAssociation:
    """The model with all layers and noise GPs, from the single-layer one of the search."""
    context = build_context(problem, start)._replace(deepening=deepening)
    processes = [
        prior.deepened(plain.process(k), context) for k, prior in enumerate(problem.priors)
    ]
    gate = plain.gate
    if isinstance(problem.gate, GatePrior) and problem.n_processes > 1:
        gate = problem.gate.deepened_gate(gate, context)
    return DataAssociation.assemble(processes, gate)
