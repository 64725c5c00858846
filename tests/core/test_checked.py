"""The annotations of the library are checked while testing: see `conftest.py`."""

import jax.numpy as jnp
import jaxtyping
from beartype import beartype

from dagp.core import linalg


def refused(function, argument, calls):
    """How many calls of a row end in an error of the type checker."""
    count = 0
    for _ in range(calls):
        try:
            function(argument)
        except jaxtyping.TypeCheckError:
            count += 1
        except ValueError:
            pass  # the function itself cannot go on with it
    return count


def test_of_twenty_calls_in_a_row_one_is_checked():
    """However often it has been called before."""
    assert refused(linalg.log_det, jnp.zeros(3), 20) >= 1


def test_the_first_calls_are_checked_one_by_one():
    @jaxtyping.jaxtyped(typechecker=beartype)
    def doubled(x: int) -> int:
        return 2 * x

    assert refused(doubled, "one", 100) == 100
    assert refused(doubled, 1, 100) == 0
    assert 1 <= refused(doubled, "one", 100) < 100
