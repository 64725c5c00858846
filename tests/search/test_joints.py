"""Where two functions may have been exchanged, and what the evidence says of it."""

import numpy as np
import pytest
from searched import begun, problem_of
from test_windows import log_joint, tangled

from dagp import DAGP, GP, SearchWarning
from dagp.core.precision import numerics
from dagp.describe.summary import joint_sentence
from dagp.search.solution import Joint, Verdict
from dagp.search.trial import View
from dagp.search.verdict import joints
from dagp.search.windows import Assignment


def smooth(x, lengthscale, seed):
    K = np.exp(-0.5 * ((x[:, None] - x) / lengthscale) ** 2) + 1e-9 * np.eye(len(x))
    return np.linalg.cholesky(K) @ np.random.default_rng(seed).standard_normal(len(x))


def two_functions(gap, lengthscale=0.2, n=160):
    """Two functions, and a gap in the middle of the input, that is wide beside the length scale."""
    rng = np.random.default_rng(3)
    side = np.linspace(gap / 2, gap / 2 + 1.0, n // 2)
    x, process = np.concatenate([-side[::-1], side]), np.arange(n) % 2
    y = np.where(process, 1.0 + smooth(x, lengthscale, 1), -1.5 + smooth(x, lengthscale, 2))
    return x[:, None], y + 0.05 * rng.standard_normal(n), process


def found(gap, labels=None):
    X, y, process = two_functions(gap)
    labels = None if labels is None else np.where(np.arange(len(y)) < labels, process, -1)
    with numerics():
        problem = problem_of(X, y, [GP(), GP()], labels, inducing=24)
        order = np.argsort(X[:, 0], kind="stable")
        solution, trainer = begun(problem, np.eye(2)[process[order]], 5)
        trainer.converge(solution, 300)
        return joints(View.of(solution, trainer)), problem


def test_an_exchange_beyond_a_gap_costs_little():
    (joint,), problem = found(1.0)
    assert joint.processes == (0, 1)
    x = np.sort(problem.sample.X[:, 0])
    assert x[79] < joint.at < x[80]
    assert joint.share == pytest.approx(0.5, abs=0.05)
    assert 0 < joint.log_odds < 5


def test_without_a_gap_there_is_no_joint():
    assert found(0.01)[0] == []


def test_labels_on_both_sides_leave_nothing_to_exchange():
    assert len(found(1.0, labels=10)[0]) == 1
    assert found(1.0, labels=160)[0] == []


@pytest.mark.parametrize("clutter", [False, True])
def test_the_evidence_of_a_function_is_that_of_its_rows(clutter):
    _, functions, member = tangled(n=40, clutter=clutter)
    state = Assignment(functions, member)
    total = sum(state.log_evidence(k, member) for k in range(2))
    total += functions.log_weights[np.arange(40), member].sum()
    assert total == pytest.approx(log_joint(functions, member), abs=1e-6)


def test_every_joint_is_a_doubt():
    doubted = Verdict(0.9).doubting([Joint((0, 1), 0.0, 0.5, 0.0), Joint((0, 2), 0.0, 0.5, 50.0)])
    assert doubted.confidence == pytest.approx(0.45)
    assert len(doubted.joints) == 2
    assert Verdict(0.9).doubting([]).confidence == 0.9


def test_a_fit_says_where_its_processes_may_have_been_exchanged(tmp_path):
    X, y, _ = two_functions(1.0)
    with pytest.warns(SearchWarning, match="may have been exchanged beyond"):
        model = DAGP(2, inducing=16, n_init=4, tol=1e-3, random_state=0).fit(X + 10, y)
    (joint,) = model.joints_
    assert 9.5 < joint["beyond"] < 10.5
    assert model.confidence_ < 0.9
    sentence = joint_sentence(joint)
    assert sentence in model.summary() and sentence in model._repr_html_().replace("&#x27;", "'")
    assert f"{np.exp(joint['log_odds']):.2g} to 1" in sentence
    again = DAGP.load(model.save(tmp_path / "model.dagp"))
    assert again.joints_ == model.joints_
