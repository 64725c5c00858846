"""Random data are fitted soundly or refused in words; `make fuzz` draws wider, and for longer."""

import collections
import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from fuzzing.cases import GATES, KERNELS, PROCESSES, SMALL, WIDE, Case, chosen, drawn, make_data
from fuzzing.property import check
from fuzzing.runner import Worker, counted
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dagp import DAGP, Mixture, kernels

PLAIN = dataclasses.replace(
    drawn(SMALL, 1), way="fit", inputs="uniform", targets="curves", weights="none", labels="none"
)


@st.composite
def cases(draw, menu):
    def pick(options):
        return draw(st.sampled_from(options))

    return chosen(menu, pick, pick, draw(st.integers(0, 2**31 - 1)))


@pytest.mark.parametrize("examples", [12, pytest.param(48, marks=pytest.mark.slow)])
def test_random_data_are_fitted_or_refused_in_words(examples):
    answers = collections.Counter()

    @settings(
        max_examples=examples, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(case=cases(SMALL))
    def run(case):
        answers[check(case).partition(":")[0]] += 1

    run()
    # A refusal is the exception: a library that refuses everything would never be wrong.
    assert answers["fitted"] >= 4 * answers["refused"]


# --------------------------------------------------------------- the fuzzing itself is tested


def test_a_case_is_its_description():
    for seed in range(50):
        case = drawn(WIDE, seed)
        again = Case.read(json.loads(json.dumps(case.written())))
        assert again == case == drawn(WIDE, seed)
        first, second = make_data(case), make_data(again)
        for field in dataclasses.fields(first):
            one, other = getattr(first, field.name), getattr(second, field.name)
            np.testing.assert_array_equal(one, other)


def test_every_kernel_gate_and_process_is_drawn():
    leaves = {kernel(1).__class__.__name__ for kernel in KERNELS.values()}
    assert leaves == set(kernels.__all__) - {"Kernel"}
    seen = [drawn(WIDE, seed) for seed in range(0, 8000, 8)]
    assert {name for case in seen for name in case.processes} == set(PROCESSES)
    assert {case.gate for case in seen} == set(GATES)
    for name in ("inputs", "targets", "weights", "labels", "inference", "batch", "way"):
        assert {getattr(case, name) for case in seen} == set(WIDE[name])


def raising(error):
    def fit(*_):
        raise error

    return fit


@pytest.mark.parametrize(
    "error",
    [
        np.linalg.LinAlgError("Singular matrix."),
        ZeroDivisionError("division by zero"),
        IndexError("index 3 is out of bounds"),
        AssertionError(),
        ValueError("operands could not be broadcast together"),
        ValueError("A sentence, but from a library of its own."),
    ],
)
def test_an_error_that_is_no_refusal_is_found(monkeypatch, error):
    monkeypatch.setattr(DAGP, "fit", raising(error))
    with pytest.raises(type(error)):
        check(drawn(SMALL, 1))


def test_a_refusal_counts_as_one():
    case = dataclasses.replace(PLAIN, rows=1)
    assert check(case).startswith("refused: ValueError: 2 processes need at least as many rows")


@pytest.mark.parametrize(
    ("view", "broken"),
    [
        ("quantile", lambda self, q: -np.asarray(q)[:, None] * np.ones(len(self))),
        ("mean", lambda self: np.full(len(self), np.nan)),
        ("variance", lambda self: np.zeros(len(self))),
        ("log_prob", lambda self, y: np.full(len(self), -np.inf)),
        ("responsibilities", lambda self, y: 0.9 * self.weights),
    ],
)
def test_an_unsound_answer_is_found(monkeypatch, view, broken):
    case = dataclasses.replace(PLAIN, flat=True)
    monkeypatch.setattr(Mixture, view, broken)
    with pytest.raises(AssertionError):
        check(case)


def test_a_warning_of_numpy_is_found(monkeypatch):
    case = dataclasses.replace(PLAIN, flat=True)
    monkeypatch.setattr(Mixture, "variance", lambda self: np.ones(len(self)) / np.zeros(1))
    with pytest.raises(AssertionError):
        check(case)


def test_a_process_that_hangs_or_crashes_is_a_failure():
    worker = Worker(limit=0.5)
    for program, cause in (("import time; time.sleep(60)", "hung"), ("exit(3)", "crashed: 3")):
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        worker.process = process
        worker.limit = 0.5 if cause == "hung" else 60
        record = worker.run({"seed": 0})
        assert record["outcome"] == "failed"
        assert record["cause"].startswith(cause)
        assert worker.process is None


def test_results_are_counted():
    records = [
        {"case": {"seed": s}, "seconds": 1.0, "outcome": outcome, "cause": cause}
        for s, (outcome, cause) in enumerate(
            [("fitted", ""), ("refused", "ValueError: no."), ("failed", "IndexError: 3")]
        )
    ]
    result = counted(records, 0.0)
    assert (result["fitted"], result["refused"], result["failed"]) == (1, {"ValueError": 1}, 1)
    assert result["failures"] == records[2:]
