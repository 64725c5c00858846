"""The paper's experiments: running, resuming, tables."""

import numpy as np
import pytest
from typer.testing import CliRunner

from dagp.baselines.capabilities import Capabilities
from dagp.baselines.gpr import GPR
from dagp.baselines.mdn import MDN
from dagp.baselines.mlp import MLP
from dagp.cli import app
from dagp.experiments import capabilities, runner
from dagp.experiments.cartpole import CARTPOLE
from dagp.experiments.multimodal import MULTIMODAL
from dagp.experiments.noise import NOISE, Oracle
from dagp.experiments.runner import Task, read, run, run_task, tasks, write
from dagp.experiments.tables import markdown

networks = pytest.mark.usefixtures("thorough_here")
"""For tests that train networks, which takes longer than to compile them."""
QUICK = tasks(NOISE, [7], ["Oracle", "MLP"], quick=True)


def scores(rows):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def test_every_fit_is_asked_for_once():
    wanted = tasks(NOISE, range(3), None, quick=False)
    assert len(wanted) == len(set(wanted)) == 3 * 10 * len(NOISE.competitors)


def test_a_wrong_model_is_named_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match=r"no model 'DAPG'.*DAGP"):
        tasks(NOISE, [0], ["DAPG"], quick=True)
    result = CliRunner().invoke(
        app, ["reproduce", "cartpole", "--models", "nothing", "-o", str(tmp_path)]
    )
    assert result.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_results_do_not_depend_on_the_number_of_jobs(tmp_path):
    some = [task for task in QUICK if task.variant in {QUICK[0].variant, QUICK[-1].variant}]
    one = run(some, tmp_path / "one.csv", jobs=1)
    two = run(some, tmp_path / "two.csv", jobs=2)
    assert len(one) == len(some) == 4
    assert scores(one) == scores(two)
    assert all("rmse" in row for row in one)


def test_a_stopped_run_goes_on_where_it_was(tmp_path, monkeypatch):
    done = []

    def count(task):
        done.append(task)
        return task._asdict() | {"rmse": 0.5, "seconds": 1.0}

    monkeypatch.setattr(runner, "run_task", count)
    record = tmp_path / "noise.csv"
    run(QUICK[:2], record)
    rows = run(QUICK, record)
    assert done == QUICK
    assert len(rows) == len(QUICK)
    assert run(QUICK, record) == rows
    assert done == QUICK


def test_a_fit_that_failed_is_recorded_and_tried_again(tmp_path, monkeypatch):
    def broken(data, seed, quick):
        raise ArithmeticError("too hard")

    monkeypatch.setitem(NOISE.competitors, "Oracle", broken)
    task = QUICK[0]
    row = run_task(task)
    assert row["error"] == "ArithmeticError('too hard')"
    record = tmp_path / "noise.csv"
    write([row], record)
    monkeypatch.undo()
    (again,) = run([task], record)
    assert "error" not in again
    assert again["rmse"] < 0.01


def test_a_record_reads_back_as_it_was_written(tmp_path):
    row = QUICK[0]._asdict() | {"rmse": 0.1 + 0.2, "gate": True}
    write([row], tmp_path / "a.csv")
    (found,) = read(tmp_path / "a.csv")
    assert found == {**row, "seed": 7.0}
    assert Task.of(found) == QUICK[0]
    assert not list(tmp_path.glob("*.tmp"))


def test_table_has_mean_standard_error_median_and_the_published_figure():
    rows = [
        {
            "variant": "clean 40",
            "model": "GPR",
            "seed": s,
            "quick": False,
            "rmse": v,
            "seconds": 1.0,
        }
        for s, v in enumerate((0.1, 0.2, 0.6))
    ]
    text = markdown(NOISE, rows)
    error = np.std([0.1, 0.2, 0.6], ddof=1) / np.sqrt(3)
    assert f"| GPR | 0.3 ± {error:.1g} \\| 0.2 (0.447) |" in text
    assert "3 seeds from 0" in text
    assert "fits" not in text
    text = markdown(NOISE, [*rows, rows[0] | {"variant": "clean 60"}])
    assert "| fits | clean 40 | clean 60 |\n| --- | --- | --- |\n| GPR | 3 | 1 |" in text


def test_oracle_is_the_exact_gp_of_the_true_inliers():
    data = NOISE.data("noisy 40", 0, quick=True)
    oracle = Oracle(data)
    mixture = oracle.predict_mixture(data.X_test, noise=False)
    error = mixture.means[:, 0] - data.y_test
    assert np.sqrt(np.mean(error**2)) < 0.1
    inside = np.abs(error) < 2 * np.sqrt(mixture.variances[:, 0])
    assert inside.mean() > 0.8
    row = NOISE.score(oracle, data)
    assert row["mll"] == pytest.approx(mixture.log_prob(data.y_test).mean() + np.log(0.6))


def test_cartpole_scores_of_a_label_knowing_gp():
    data = CARTPOLE.data("cart-pole", 0, quick=True)
    row = CARTPOLE.score(CARTPOLE.competitors["GPR default"](data, 0, True), data)
    assert row["default"] > row["mixed"] > row["short"]
    assert "accuracy" not in row


def test_multimodal_is_scored_on_fresh_data():
    data = MULTIMODAL.data("figure", 0, quick=True)
    assert not np.intersect1d(data.X, data.X_fresh).size
    row = MULTIMODAL.score(GPR(random_state=0).fit(data.X, data.y), data)
    assert set(row) == {"log_score"}


@networks
def test_capabilities_are_shown_not_stated():
    assert capabilities.demonstrate(MLP) == {"scalable": True}

    class Boaster(MLP):
        capabilities = Capabilities(scalable=True)

        def _means(self, X):
            return 0 * X[:, 0]

    assert capabilities.demonstrate(Boaster) == {"scalable": False}
    text = capabilities.markdown({"MLP": {"scalable": True}, "Boaster": {"scalable": False}})
    assert "| MLP | – | ✓ | –" in text
    assert "| Boaster | – | ✗ | –" in text


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_demonstrations_come_in_the_order_of_the_models(jobs):
    found = list(capabilities.demonstrations([MLP, MDN], jobs))
    assert found[0] == {"scalable": True}
    assert set(found[1]) == set(capabilities.declared(MDN).names())


def test_every_declared_capability_has_a_task():
    assert set(capabilities.PROBES) == set(Capabilities._fields)


@networks
def test_reproduce_from_the_command_line(tmp_path):
    arguments = ["reproduce", "noise", "--quick", "--models", "Oracle,MLP", "--no-figures"]
    result = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    text = (tmp_path / "reproduce-quick" / "noise.md").read_text()
    assert "quick run" in text
    assert "| MLP |" in text


@pytest.mark.slow
def test_reproduce_all_quickly(tmp_path, monkeypatch):
    # Its fits are long: here programs that run fast matter more than a fast compiler.
    monkeypatch.delenv("JAX_DISABLE_MOST_OPTIMIZATIONS", raising=False)
    arguments = ["reproduce", "all", "--quick", "--jobs", "2", "-o", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "reproduce-quick"
    for name in ("noise", "multimodal", "cartpole", "wetchicken"):
        assert not any(row.get("error") for row in read(folder / f"{name}.csv"))
    assert "✗" not in (folder / "capabilities.md").read_text().split("declared and shown")[0]
