"""Shared set-up: annotations are checked while testing, and the core is tested in float64."""

from collections.abc import Iterator

import jaxtyping
import pytest
from hypothesis import settings

# Must run before anything imports dagp: shapes and dtypes in annotations are then checked.
# The numeric tower of PEP 484 lets an int stand where a float is asked for, as a user may.
jaxtyping.install_import_hook(
    "dagp", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"
)

from dagp import runtime  # noqa: E402


# The same examples every time, no files written, no clock: the first example compiles.
settings.register_profile("dagp", derandomize=True, database=None, deadline=None)
settings.load_profile("dagp")


@pytest.fixture(scope="module")
def float64() -> Iterator[None]:
    """Double precision for a whole module: ``pytestmark = pytest.mark.usefixtures("float64")``.

    Not autouse, so that tests of the estimator see the climate a user has. Scope is the module,
    because hypothesis runs many examples inside one function-scoped fixture.
    """
    with runtime.numerics("float64"):
        yield
