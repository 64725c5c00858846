"""Proposals: when they are hopeless, back where they came from, trained, accepted; and climbing."""

import numpy as np
import pytest
from searched import begun, padded, problem_of, sample_of, solution_of

from dagp import GP
from dagp.core.precision import numerics
from dagp.inference.standardize import to_batch
from dagp.inference.train import BLOCK, Result, State
from dagp.search import trial as module
from dagp.search.settings import GAIN, MOVE_STEPS, PATIENT_STEPS
from dagp.search.trial import Accept, Proposal, Trainer, Trial, climb, extrapolated, trials

HOME = np.eye(2)[np.repeat([0, 1], 50)]
ROWS = to_batch(sample_of(np.arange(100.0)[:, None], np.zeros(100)), 2)


def shares_where(points):
    """The first so many points have changed hands."""
    shares = HOME.copy()
    shares[:points] = 1 - shares[:points]
    return shares


def state_where(points):
    return State(None, padded(shares_where(points)), None)


def trial_of(points, bound=0.0, home=0.0, accept=None, left=None, name="a move"):
    """A proposal that changes so many points, of which some are left after the probe."""
    accept = accept or Accept(0.5)
    proposal = Proposal(name, frozenset((0, 1)), shares_where(points), accept)
    solution = solution_of(HOME, home)
    state = state_where(points if left is None else left)
    result = Result(state, bound, np.zeros(0), "budget", 0.1)
    return Trial(proposal, solution, Trainer(ROWS, 1e-3), solution.problem, result)


@pytest.mark.parametrize(
    ("moved", "left", "reverted"),
    [(40, 0, True), (40, 1, True), (40, 2, False), (40, 40, False), (4, 1, True), (4, 2, False)],
)
def test_a_proposal_has_gone_back_when_little_of_it_is_left(moved, left, reverted):
    assert trial_of(moved).reverted(state_where(left), HOME) == reverted


def test_names_do_not_matter_but_kinds_do():
    one = trial_of(40)
    renamed = State(None, padded(HOME[:, ::-1]), None)
    assert one.reverted(renamed, HOME)
    one.problem.kinds = ("GP", "another")
    assert not one.reverted(renamed, HOME)


@pytest.mark.parametrize(
    ("bound", "left", "patient", "hopeful"),
    [
        (-99.0, 40, False, True),
        (-101.0, 40, False, False),
        (-99.0, 0, False, False),
        (np.nan, 40, False, False),
        # What is trained to its end anyway may begin low, and where it came from.
        (-999.0, 0, True, True),
        (np.nan, 40, True, False),
    ],
)
def test_a_probe_tells_what_is_not_worth_training(bound, left, patient, hopeful):
    accept = Accept(0.0 if patient else 0.5, patient=patient)
    assert trial_of(40, bound, accept=accept, left=left).hopeful == hopeful


def test_a_score_that_no_training_could_raise_enough_is_hopeless():
    def score(state, bound):
        return bound - (10.0 if state.responsibilities[0, 1] > 0.5 else 0.0)

    dear, cheap = (Accept(0.5, s, patient=True) for s in (score, lambda state, bound: bound))
    assert not trial_of(40, 3.0, accept=dear).hopeful
    assert trial_of(40, 3.0, accept=cheap).hopeful
    assert not trial_of(40, 3.0, accept=dear).accepted
    assert trial_of(40, 11.0, accept=dear).accepted


def following(run_of, monkeypatch):
    """Training whose blocks end at these (ELBO, points moved), from zero and evenly."""
    asked = []

    def train(state, batch, *, max_iter, stop, rate=0.1, **_):
        asked.append(max_iter)
        trace, run, bound = np.zeros(0), None, 0.0
        for bound, left in run_of[: max_iter // BLOCK]:
            top = bound if np.isfinite(bound) else 0.0
            trace = np.concatenate([trace, np.linspace(0.0, top, BLOCK)])
            run = module.LoopState(state_where(left), None, bound, bound, rate, 0, 0, trace)
            if stop(run):
                break
        return Result(run.state, bound, trace, "budget", rate)

    monkeypatch.setattr(module, "train", train)
    return asked


@pytest.mark.parametrize(
    ("blocks", "ends"),
    [
        ([(2.5, 40), (6.0, 40)], 2),
        # Back home, and no higher than there.
        ([(4.0, 0), (6.0, 0)], 1),
        # Back home, but higher.
        ([(6.0, 0), (7.0, 0)], 2),
        # Too slow.
        ([(0.5, 40), (6.0, 40)], 1),
        ([(-np.inf, 40), (6.0, 40)], 1),
    ],
)
def test_a_move_is_given_up_halfway_or_trained_to_its_end(blocks, ends, monkeypatch):
    asked = following(blocks, monkeypatch)
    tried = trial_of(40, home=4.5)
    found = tried.trained(tried.trainer).result
    assert asked == [MOVE_STEPS]
    assert (found.bound, len(found.trace)) == (blocks[ends - 1][0], BLOCK * ends)


def test_what_is_patient_is_trained_until_it_levels_off(monkeypatch):
    # A block of steps gains as much as it gains from zero: the first rise steeply, then none does.
    blocks = [(bound, 40) for bound in (600.0, 600.0, 0.1, 0.1)]
    asked = following(blocks, monkeypatch)
    tried = trial_of(40, home=1.0, accept=Accept(-np.inf, patient=True))
    found = tried.trained(tried.trainer).result
    assert asked == [PATIENT_STEPS]
    assert (found.bound, len(found.trace)) == (0.1, 3 * BLOCK)


def test_an_elbo_levels_off_where_its_gains_are_used_up():
    steps = np.arange(BLOCK)
    # Between the limit of a single rate of decay and a multiple of the last gain.
    values = 1 - 0.8**steps
    later = values[-1] - values[BLOCK // 2]
    assert extrapolated(values, 0.0) == pytest.approx(1.0, abs=0.05)
    assert extrapolated(values) == values[-1] + 3 * later
    # What rises evenly may go on for some time; what falls has no further to go.
    assert extrapolated(steps.astype(float)) > 2 * steps[-1]
    assert extrapolated(-steps.astype(float)) == 0.0
    assert extrapolated(np.zeros(0)) == -np.inf


def proposing(*names, gain=1e9):
    """A generator of proposals of these names, that are never accepted."""

    def move(view):
        for name in names:
            touches = frozenset((0,)) if name.endswith("0") else frozenset((1,))
            yield Proposal(name, touches, view.responsibilities, Accept(gain))

    return move


@pytest.fixture
def lines():
    """A problem of two lines, a solution of it, and its trainer."""
    x = np.linspace(-1, 1, 40)
    y = np.where(np.arange(40) % 2, x, -x) + 0.01 * np.cos(37 * x)
    with numerics():
        problem = problem_of(x[:, None], y, [GP(), GP()], inducing=6)
        yield begun(problem, 0.8 * np.eye(2)[np.arange(40) % 2] + 0.1, 5)


def test_trials_that_end_alike_are_tried_once(lines):
    home, trainer = lines
    other = np.eye(2)[(np.arange(40) < 20).astype(int)]
    given = [Proposal(f"way {i}", frozenset(), other, Accept(1e9)) for i in range(3)]
    found = list(trials(home, given, trainer))
    assert sorted(trial.proposal.name for trial in found) == ["way 0", "way 1", "way 2"]
    assert sum(len(trial.result.trace) > 0 for trial in found) <= 1


def test_climbing_ends_when_nothing_is_accepted(lines):
    home, trainer = lines
    state, bound = home.state, home.bound
    assert not climb(home, [[proposing("one 0", "other 1")], [proposing("last 0")]], trainer)
    assert home.state is state and home.bound == bound


def test_what_was_rejected_is_tried_again_only_when_a_process_of_it_has_changed(lines):
    home, trainer = lines
    tried = []

    def watched(view):
        for name in ("first 0", "second 1"):
            tried.append(name)
            touches = frozenset((int(name[-1]),))
            yield Proposal(name, touches, view.responsibilities, Accept(1e9))

    def better(view):
        # Accepted once, whatever it is: it changes process 1 alone.
        if "better" not in dict(view.home.moves):
            accept = Accept(-np.inf, patient=True)
            yield Proposal("better", frozenset((1,)), view.responsibilities, accept)

    probed = []
    original = module.probe

    def probe(home, proposal, trainer):
        probed.append(proposal.name)
        return original(home, proposal, trainer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "probe", probe)
        assert climb(home, [[watched], [better]], trainer)
    assert probed == ["first 0", "second 1", "better", "second 1"]


def test_a_callback_stops_the_search_between_trials(lines):
    home, trainer = lines
    told = []
    stopping = trainer._replace(callback=lambda progress: told.append(progress.phase) or True)
    better = proposing("accepted 0", gain=-np.inf)
    with pytest.raises(module.StopSearchError):
        climb(home, [[better]], stopping)
    assert told == ["accepted 0"]


@pytest.mark.parametrize(("gained", "ended"), [(True, "converged"), (False, "diverged")])
def test_where_a_run_has_ended_the_gate_may_go_on_alone(lines, monkeypatch, gained, ended):
    home, trainer = lines
    whole = Result(home.state, -5.0, np.array([-5.0, -9.0]), ended, 0.005)
    alone = Result(home.state, -3.0 if gained else -5.0, np.array([-6.0, -3.0]), "converged", 0.01)
    answers, asked, steps, rules = [whole, alone], [], [], []

    def run(state, batch, *, max_iter, parts, callback, stop=None, **_):
        asked.append((list(parts), max_iter))
        callback(module.Progress("train", 0, 12, -5.0))
        rules.append(stop)
        return answers[len(asked) - 1]

    monkeypatch.setattr(module, "train", run)
    watched = trainer._replace(callback=lambda p: bool(steps.append(p.step)))
    watched.converge(home, 100)
    assert asked == [([1, 1], 100), ([0, 1], 98)]
    assert steps == [12, 14]
    assert (home.bound, home.rate) == (-3.0 if gained else -5.0, 0.005)
    assert home.status == ("converged" if gained else ended)
    # It ends after the first block that gains nothing.
    assert rules[1](module.LoopState(None, None, -5.0, -5.0, 0.1, 0, 0, np.zeros(0)))
    assert not rules[1](module.LoopState(None, None, -4.0, -4.0, 0.1, 0, 0, np.zeros(0)))


@pytest.mark.parametrize(
    ("status", "steps", "bound"),
    [("budget", 100, -5.0), ("converged", 20, -5.0), ("diverged", 100, -np.inf)],
)
def test_the_gate_does_not_go_on_after_a_budget(lines, monkeypatch, status, steps, bound):
    home, trainer = lines
    whole, asked = Result(home.state, bound, np.array([-5.0]), status, 0.005), []
    monkeypatch.setattr(module, "train", lambda *_, **given: asked.append(given) or whole)
    trainer.converge(home, steps)
    assert len(asked) == 1


def test_gains_of_moves_are_counted_per_data_point(lines):
    home, _ = lines
    assert module.levelled(home, _flat(GAIN * 500 / 3.1))
    assert not module.levelled(home, _flat(GAIN * 500 / 2.9))


def _flat(gain):
    """A run whose last half block gained so much, and the one before it very much."""
    trace = np.concatenate([[-1e6], np.zeros(BLOCK // 2), np.full(BLOCK - BLOCK // 2 - 1, gain)])
    return module.LoopState(None, None, gain, gain, 0.1, 0, 0, trace)
