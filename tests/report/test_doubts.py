"""How sure the report says it is of the process of each row, and why."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dagp.predict.mixture import Mixture
from dagp.report.case import Case
from dagp.report.doubts import certainty, doubts, least_clear, reason

WEIGHTS = [0.45, 0.45, 0.1]


def case(
    y: Any, apart: float = 10.0, clutter: bool = True, weights: Any = WEIGHTS, others: Any = ()
) -> Case:
    """Rows of functions at 0 and at `apart`, both with standard deviation 1, and of clutter."""
    y = np.array(y, float).reshape(len(y), -1)
    N, P = y.shape

    def mixture(x: Any, order: Any = (0, 1, 2)) -> Mixture:
        levels = np.array([0.0, apart, 5.0])[list(order)]
        means = np.tile(levels[None, :, None], (len(x), 1, P))
        variances = np.tile(np.array([1.0, 1.0, 400.0])[list(order), None], (len(x), 1, P))
        return Mixture(np.tile(weights, (len(x), 1)), means, variances)

    def other(order: Any) -> Any:
        # The same rows, with functions that have changed places.
        return SimpleNamespace(mixture=lambda x, flat: mixture(x, order))

    kernels = [1, 1, None if clutter else 1]
    first = 1 - sum(weight for weight, _ in others)
    shares = [(first, other((0, 1, 2)), [0, 1, 2])]
    shares += [(weight, other(order), [0, 1, 2]) for weight, order in others]
    processes = [SimpleNamespace(index=k, kernel_=kernel) for k, kernel in enumerate(kernels)]
    model: Any = SimpleNamespace(
        processes_=processes,
        active_=np.ones(3, bool),
        posterior_=SimpleNamespace(associations=lambda: shares),
    )
    X, used, known = np.zeros((N, 1)), np.ones(N, bool), mixture(np.zeros(N))
    found = known.responsibilities(y)
    names = [f"y{p}" for p in range(P)]
    owner = found.argmax(axis=1)
    return Case(model, X, y, used, list(range(N)), "place", ["x"], names, known, found, owner)


def why(shown: Case, row: int) -> str:
    return reason(shown, doubts(shown), row)


def test_distances_are_in_standard_deviations_of_the_largest_output():
    known = doubts(case([[0.5, -2.0], [np.nan, 9.0]]))
    np.testing.assert_allclose(known.distance[0], [2.0, 12.0, 0.35])
    # The output that is missing does not count.
    np.testing.assert_allclose(known.distance[1], [9.0, 1.0, 0.2])
    np.testing.assert_allclose(known.apart[0], [0.0, 10.0, 5.0])
    np.testing.assert_array_equal(known.rival, [2, 2])


def test_a_row_near_one_function_and_far_from_the_other():
    assert why(case([0.5], weights=[0.5, 0.5, 1e-30]), 0) == (
        "0.5 standard deviations from process 0, 9.5 from process 1"
    )


def test_functions_that_predict_the_same_cannot_be_told_apart():
    shown = case([0.02], apart=0.1)
    assert least_clear(shown).tolist() == [0]
    assert why(shown, 0).endswith("and process 1 predicts almost the same here")
    assert certainty(shown, doubts(shown), 0).endswith("which predicts almost the same there.")


def test_a_row_that_may_be_an_outlier():
    shown = case([2.9, 3.2])
    assert why(shown, 0).endswith(
        "standard deviations from process 0, but outliers may lie there, too"
    )
    assert why(case([3.1], weights=[0.89, 0.1, 0.01]), 0).endswith("from process 0, which is far")


def test_outliers_are_far_from_the_nearest_function_or_where_functions_are_unlikely():
    assert why(case([14.5]), 0) == "4.5 standard deviations from process 1, the nearest"
    unlikely = case([11.0], weights=[1e-9, 1e-9, 1.0])
    assert why(unlikely, 0) == (
        "1 standard deviation from process 1, which is unlikely here, the nearest"
    )
    shown = case([13.2])
    assert certainty(shown, doubts(shown), 2).endswith(
        "with process 1, as they lie close to its function."
    )


def test_other_divisions_come_first():
    exchanged = case([0.1, 30.0], others=[(0.3, (1, 0, 2))])
    text = why(exchanged, 0).replace("\N{NO-BREAK SPACE}", " ")
    assert text == "other divisions of the rows, 30 % probable, give it to another one"
    # A row that all divisions give to clutter has another reason.
    assert why(exchanged, 1).startswith("20 standard deviations")


def test_the_least_clear_come_first_and_certain_processes_say_so():
    shown = case([0.0, 4.9, 4.95, 4.5, 10.0], weights=[0.5, 0.5, 1e-9])
    assert least_clear(shown).tolist() == [2, 1]
    clear = case([0.0, 10.0], weights=[0.5, 0.5, 1e-9])
    assert certainty(clear, doubts(clear), 0).endswith("on average, and none is ambiguous.")
    assert certainty(clear, doubts(clear), 2) == ""


@pytest.mark.filterwarnings("error")
def test_a_function_without_noise_at_its_own_row():
    shown = case([0.0])
    exact = Mixture([[1.0, 0.0, 0.0]], [[[0.0], [1.0], [2.0]]], [[[0.0], [0.0], [0.0]]])
    known = doubts(shown._replace(mixture=exact))
    assert known.distance[0, 0] == 0 and np.all(known.distance[0, 1:] > 1e6)
