"""The speed suite: what it computes from times, its shape, its options, and the peers' protocol."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from typer.testing import CliRunner

from dagp.bench import child, fresh, suite
from dagp.bench.steps import Size, bytes_needed, step_ms
from dagp.bench.timing import exponent, repeated, summary
from dagp.cli.app import app
from dagp.experiments import judge

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import against
import peer


def run(*arguments):
    return CliRunner().invoke(app, ["bench", *arguments])


def test_exponent_is_the_slope_of_the_logarithms():
    rng = np.random.default_rng(0)
    sizes = np.geomspace(10, 1e5, 9)
    values = 3 * sizes**1.7 * np.exp(0.1 * rng.standard_normal(9))
    (slope, _), covariance = np.polyfit(np.log(sizes), np.log(values), 1, cov=True)
    found = exponent(sizes.tolist(), values.tolist())
    assert found["exponent"] == pytest.approx(slope, abs=1e-3)
    assert found["standard_error"] == pytest.approx(np.sqrt(covariance[0, 0]), abs=1e-3)
    assert exponent([1, 10], [5.0, 5.0])["standard_error"] is None
    with pytest.raises(ValueError, match="two different sizes"):
        exponent([3, 3], [1.0, 2.0])


def test_repeats_leave_the_warm_up_out():
    calls = []
    figure = repeated(lambda: calls.append(0), "ms", repeats=4, warm_up=2, scale=1e3)
    assert (len(calls), figure["repeats"], figure["unit"]) == (6, 4, "ms")
    low, high = figure["quartiles"]
    assert low <= figure["median"] <= high
    assert summary([1.0, 2.0, 100.0], "s")["median"] == 2.0


def test_exponents_follow_each_line():
    done = {
        Size(rows, processes, inducing): {"median": rows * processes * inducing**2.0}
        for rows in (1, 10)
        for processes in (2, 4)
        for inducing in (5, 10, 20)
    }
    found = suite.exponents(done)
    powers = {"rows": 1.0, "processes": 1.0, "inducing": 2.0}
    assert all(line["exponent"] == powers[line["in"]] for line in found)
    assert [line["in"] for line in found].count("inducing") == 4
    assert {"rows": 1, "processes": 2, "layers": 1, "batch": None} in [x["at"] for x in found]


@pytest.mark.parametrize("batch", [None, 16])
def test_steps_are_timed(batch):
    figure = step_ms(Size(40, 1, 4, batch=batch), repeats=2)
    assert 0 < figure["median"] < 1e4
    assert (figure["unit"], figure["repeats"]) == ("ms", 2)


def test_sizes_beyond_memory_are_skipped_with_the_reason(monkeypatch):
    monkeypatch.setattr(suite, "bytes_free", lambda: 1e9)
    monkeypatch.setattr(suite, "step_ms", lambda size, repeats: {"median": float(size.rows)})
    few, many = suite.REFERENCE, Size(rows=1_000_000)
    plan = suite.SUITES["full"]._replace(sizes=(few, Size(2000), many))
    found = suite.MEASUREMENTS["steps"](plan)
    assert [row.get("of_reference") for row in found["rows"]] == [1.0, 2.0, None]
    assert "GiB" in found["rows"][2]["skipped"]
    assert bytes_needed(many._replace(batch=1000)) < 1e9 < bytes_needed(many)


def test_the_full_suite_has_the_whole_grid():
    sizes = suite.SUITES["full"].sizes
    assert {(s.inducing, s.processes) for s in sizes if s.rows == 1000 and s.layers == 1} >= {
        (M, K) for M in (25, 100, 500) for K in (2, 4, 8)
    }
    assert {s.rows for s in sizes} >= {10**e for e in (3, 4, 5, 6)}
    assert {s.layers for s in sizes} == {1, 2, 3}


def test_shape_and_options(monkeypatch, tmp_path):
    jobs = {"import": lambda plan: {"repeats": plan.repeats}, "steps": lambda plan: {"rows": []}}
    for place in ("dagp.bench.suite.MEASUREMENTS", "dagp.cli.bench.MEASUREMENTS"):
        monkeypatch.setattr(place, jobs)
    answer = json.loads(run("--suite", "full").stdout)
    assert answer["suite"] == "full"
    assert answer["import"]["repeats"] == suite.SUITES["full"].repeats
    assert {"machine", "load_at_end", "steps"} <= answer.keys()
    assert {"processor", "cores", "device", "versions"} <= answer["machine"].keys()
    file = tmp_path / "bench.json"
    assert run("--only", "steps", "-o", str(file)).exit_code == 0
    assert "import" not in json.loads(file.read_text())
    assert run("-o", str(file)).exit_code == 2
    assert run("-o", str(file), "--force").exit_code == 0
    for option in ("--suite", "--only"):
        refused = run(option, "nothing")
        assert refused.exit_code == 2
        assert "nothing" in refused.output


def test_a_fresh_process_answers_or_says_why(tmp_path):
    assert "nothing" in fresh.run_job(str(tmp_path), do="nothing")["error"]


def test_a_child_does_not_count_the_memory_of_its_parent():
    code = "from dagp.bench.child import _peak; print(_peak())"
    command = [sys.executable, "-c", code]
    small = int(subprocess.run(command, capture_output=True, check=True).stdout)
    ballast = np.ones(2**25)
    large = int(subprocess.run(command, capture_output=True, check=True).stdout)
    assert large < small + ballast.nbytes / 2


def test_jobs_of_a_child_report_what_was_asked(monkeypatch, capsys):
    monkeypatch.setitem(child.JOBS, "count", lambda to: {"total": np.int64(to)})
    monkeypatch.setattr(sys, "argv", ["", json.dumps({"do": "count", "to": 3})])
    child.main()
    assert json.loads(capsys.readouterr().out) == {"total": 3}


def test_fits_are_timed_cold_and_again(monkeypatch):
    def run_job(home, do, experiment, times):
        if experiment == "broken":
            return {"error": "no"}
        return {"first": 9.0, "again": [1.0, 2.0, 6.0][:times], "product_ms": [8.0] * (times + 1)}

    monkeypatch.setattr(fresh, "run_job", run_job)
    found = fresh.fits({"often": 3, "once": 0, "broken": 1})
    assert (found["often"]["cold"], found["often"]["again"]["median"]) == (9.0, 2.0)
    assert found["once"].keys() == {"cold", "product_ms"}
    assert found["broken"] == {"skipped": "no"}


def test_a_child_times_its_first_fit_and_later_ones(monkeypatch):
    calls = []
    model = SimpleNamespace(fit=lambda X, y: calls.append((X, y)))
    monkeypatch.setattr(child, "_task", lambda name, seed: (SimpleNamespace(X=1, y=2), model))
    found = child.fits("noise", 2)
    assert calls == [(1, 2)] * 3
    assert (len(found["again"]), len(found["product_ms"])) == (2, 3)
    assert min(found["product_ms"]) > 0


def test_recovery_counts_what_was_found(monkeypatch):
    def run_job(home, do, experiment, seed):
        return {"seconds": float(seed), "recovered": seed != 101} if seed < 102 else {"error": "no"}

    monkeypatch.setattr(fresh, "run_job", run_job)
    found = fresh.recovery(("noise",), 3)["noise"]
    assert (found["recovered"], found["of"], found["cold"]["median"]) == (1, 3, 100.5)
    assert found["rows"][-1]["error"] == "no"


def test_rand_index_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    for groups in (1, 2, 5):
        a, b = rng.integers(0, groups, 50), rng.integers(0, 4, 50)
        assert judge.rand_index(a, b) == pytest.approx(adjusted_rand_score(a, b))
        assert judge.rand_index(a, a + 3) == 1.0


def test_the_judge_wants_association_and_gate():
    x, process = np.tile(np.linspace(-6, 6, 60), 3), np.repeat([0, 1, 2], 60)
    gate = [[0.66, 0, 0.34, 0], [0.33, 0.34, 0.33, 0]]
    assert judge.multimodal(x, process, process, gate)["recovered"]
    swapped = np.where(x > 2.5, np.array([1, 0, 2])[process], process)
    assert not judge.multimodal(x, process, swapped, gate)["recovered"]
    assert not judge.multimodal(x, process, process, gate[::-1])["recovered"]
    assert not judge.cartpole([0, 1, 0, 1], [0, 0, 0, 1])["recovered"]


class Contender:
    """Finds the structure in its second start, whose bound is the lowest; the last start fails."""

    def __init__(self, X, y, Z, probes, job):
        self.process = (X[:, 0] > 0).astype(int)

    def restart(self, seed):
        self.start = seed % 1000

    def steps(self, count):
        if self.start == 2:
            raise ValueError("not positive definite")
        return -100.0 * self.start

    def look(self):
        found = self.process if self.start == 1 else 0 * self.process
        return np.eye(2)[found], np.ones((2, 2))


def test_peers_are_timed_to_first_sight_and_without_knowing():
    X = np.linspace(-1, 1, 20)[:, None]
    data = {"X": X, "y": X[:, 0], "Z": X, "probes": X[:2], "process": (X[:, 0] > 0).astype(int)}
    job = {"task": "cartpole", "judge": judge.__file__, "seed": 100, "limit": 60.0, "starts": 3}
    found = peer.recover(Contender, job, data)
    blind = found["blind"]
    assert found["recovered"]
    assert not blind["recovered"]
    assert (blind["bound"], blind["starts"], blind["complete"]) == (0.0, 3, True)
    assert 0 < found["seconds"] < blind["seconds"]
    one = peer.recover(Contender, job | {"starts": 1}, data)
    more = peer.recover(Contender, job | {"starts": 1, "more": True}, data)
    assert [(x["recovered"], x["starts"]) for x in (one, more)] == [(False, 1), (True, 2)]
    assert not more["blind"]["recovered"]


def test_ratios_are_taken_seed_by_seed():
    rows = []
    for seed, ours, theirs in ((100, 1.0, 10.0), (101, 2.0, 40.0), (102, 4.0, 120.0)):
        cold, warm = (
            {"seconds": ours / by, "cpu_seconds": ours, "recovered": True} for by in (1, 2)
        )
        blind = {"seconds": 2 * theirs, "recovered": seed > 100, "complete": seed < 102}
        blind["cpu_seconds"] = theirs
        answer = {"seconds": theirs, "cpu_seconds": theirs, "recovered": seed < 102}
        answer["blind"] = blind
        rows.append({"model": "dagp, cold", "seed": seed} | cold)
        rows.append({"model": "peer", "seed": seed} | answer | against._ratios(answer, cold, warm))
    found = against.summarised(rows)
    assert found["dagp, cold"]["recovered"] == 3
    assert found["dagp, cold"]["seconds_per_recovery"] == pytest.approx(7 / 3)
    assert found["peer"]["seconds_per_recovery"] == 85.0
    them = found["peer"]
    assert (them["recovered"], them["blind_recovered"], them["cut_off"]) == (2, 2, 1)
    assert them["first_sight_over_ours_cold"]["median"] == 20.0
    assert them["blind_over_ours_warm"]["median"] == 80.0
    assert them["blind_over_ours_warm_processor"]["median"] == 20.0
