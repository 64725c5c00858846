"""Dynamics: models of transitions that look ahead, and policies that are improved on them.

`TransitionModel` is a `DAGP` of the next state. Its `rollout` draws trajectories, `improve_policy`
searches for a policy with a high return, and `dagp.dynamics.gym` offers a model as an environment
of Gymnasium. `steps` is one step, `functions` what it evaluates, `rollout` many steps.
"""

from dagp.dynamics.paths import Rollout
from dagp.dynamics.policy import Policy, network_policy
from dagp.dynamics.search import Improved, improve_policy
from dagp.dynamics.transition import TransitionModel

__all__ = ["Improved", "Policy", "Rollout", "TransitionModel", "improve_policy", "network_policy"]
