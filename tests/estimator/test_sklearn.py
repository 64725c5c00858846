"""scikit-learn's own checks."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from dagp import DAGP, GP, Noise

# The same few inducing points for every table: fewer shapes to compile.
QUICK = {"n_init": 1, "max_iter": 500, "tol": 1e-1, "inducing": 12, "random_state": 0}
pytestmark = pytest.mark.filterwarnings("ignore:inducing=12 is more than X has distinct rows")


ONE_ARGUMENT = (
    "calls score_samples(X); here it is the log density of pairs and takes (X, y), as the "
    "density of y given x cannot be had without y"
)


def expected_failures(_: DAGP) -> dict[str, str]:
    """Checks that cannot pass, each with its reason."""
    return {
        "check_methods_sample_order_invariance": ONE_ARGUMENT,
        "check_methods_subset_invariance": ONE_ARGUMENT,
    }


@parametrize_with_checks(
    [DAGP(processes=[GP(), Noise()], **QUICK)], expected_failed_checks=expected_failures
)
def test_scikit_learn_compatible(estimator, check):
    check(estimator)
