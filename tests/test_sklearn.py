"""scikit-learn's own checks."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from dagp import DAGP, GP, Noise

QUICK = {"n_init": 1, "max_iter": 500, "tol": 1e-1, "inducing": None, "random_state": 0}


def expected_failures(estimator: DAGP) -> dict[str, str]:
    """Checks that cannot pass, each with its reason. None so far."""
    return {}


@parametrize_with_checks(
    [DAGP(n_processes=1, **QUICK), DAGP(processes=[GP(), Noise()], **QUICK)],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_compatible(estimator, check):
    check(estimator)
