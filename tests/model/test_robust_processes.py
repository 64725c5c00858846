"""What must not break: threads, processes, cores, and commands that must come to an end."""

import ast
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor

import dagp
from dagp import DAGP, datasets
from dagp.cli.app import COMMANDS

WATCHDOG = 300
"""Seconds after which something hangs: many times what it takes on a busy machine."""
N = 24
X = np.linspace(0, 1, N)[:, None]
OUTPUTS = [np.sin(6 * X[:, 0]), np.cos(4 * X[:, 0]) ** 2, X[:, 0] ** 3]


def answers(y, random_state=0):
    """Everything a small fit says, as bytes."""
    model = DAGP(1, n_init=1, max_iter=200, tol=1e3, inducing=6, random_state=random_state)
    mixture = model.fit(X, y).predict_mixture(X)
    return np.concatenate([mixture.weights, mixture.means, mixture.variances]).tobytes()


# ---------------------------------------------------------------------------- several at a time


def calls(path):
    """Names that are imported or called in a source file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or ""
            yield from (f"{module}.{alias.name}".strip(".") for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield f"{ast.unparse(node.value)}.{node.attr}"


SOURCES = sorted(Path(dagp.__file__).parent.rglob("*.py"))


def test_nothing_forks():
    """A process forked after JAX has started hangs."""
    names = {name for path in SOURCES for name in calls(path)}
    assert "joblib.Parallel" in names, "nothing would be found"
    forks = ("multiprocessing", "os.fork", "concurrent.futures")
    threads = {"concurrent.futures.Future", "concurrent.futures.ThreadPoolExecutor"}
    assert [name for name in names if name.startswith(forks) and name not in threads] == []


def test_every_pool_of_processes_is_loky():
    pools = [
        node
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Parallel")
    ]
    assert pools
    for pool in pools:
        backend = {word.arg: ast.unparse(word.value) for word in pool.keywords}["backend"]
        assert backend == "'loky'"


def test_threads_give_the_same_results_as_one_after_the_other():
    serial = [answers(y) for y in OUTPUTS]
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(answers, OUTPUTS)) == serial


def test_processes_give_the_same_results_as_one_after_the_other(monkeypatch, tmp_path):
    # What one of them compiled is not compiled again by another. Not in this process, which may
    # hold programs that an earlier test compiled in another way, with other last bits.
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    settings = {"n_jobs": 2, "backend": "loky", "timeout": WATCHDOG}
    wanted = [delayed(answers)(y) for y in OUTPUTS]
    try:
        # A single batch: one process does it all, one after the other.
        serial = Parallel(batch_size=len(wanted), **settings)(wanted)
        found = Parallel(batch_size=1, **settings)(wanted)
    finally:
        get_reusable_executor().shutdown(wait=True)
    assert found == serial


def test_two_cores_do_not_deadlock():
    """K sparse GPs mapped together hang on two cores in some JAX versions; see pyproject.toml.

    This very fit hangs with JAX 0.10.1, every thread waiting for another; with 48 inducing points
    it would not.
    """
    code = (
        "import os\n"
        "if hasattr(os, 'sched_setaffinity'):\n"
        "    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])\n"
        "import numpy as np; from dagp import DAGP\n"
        "x = np.linspace(0, 1, 200)[:, None]\n"
        "DAGP(4, n_init=1, max_iter=25, tol=1e3, inducing=64).fit(x, np.sin(x[:, 0]))\n"
    )
    # Programs as a user gets them: others may not hang.
    ours = {"JAX_DISABLE_MOST_OPTIMIZATIONS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}
    environment = {k: v for k, v in os.environ.items() if k not in ours}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=WATCHDOG, env=environment)


# ----------------------------------------------------------------- commands come to an end


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a table and a model, and a way to run commands in it."""
    folder = tmp_path_factory.mktemp("commands")
    data = datasets.noise_separation(outliers=0.2, n=40, random_state=1)
    np.savetxt(folder / "data.csv", np.c_[data.X, data.y], delimiter=",", header="x,y", comments="")
    environment = os.environ | {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "DAGP_CACHE": "",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }

    def run(*words, limit=WATCHDOG):
        return subprocess.run(
            [sys.executable, "-c", "from dagp.cli import main; main()", *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=limit,
        )

    made = run(*WORDS["fit"].split())
    assert made.returncode == 0, made.stderr
    return folder, run


WORDS = {
    "fit": "fit data.csv -t y --processes 1 --starts 1 --max-iter 50 -o model.dagp",
    "init": "init data.csv -o config.toml",
    "predict": "predict model.dagp data.csv -o out.csv",
    "plot": "plot model.dagp -o figure.png",
    "report": "report model.dagp -o report.html",
    "info": "info model.dagp",
    "reproduce": "reproduce noise --quick --models Oracle --no-figures -o results",
    "launch": "launch -p 2 -- fit data.csv -t y --processes 1 --starts 1 --max-iter 50 -o two.dagp",
    "demo": "demo -o demo",
    "bench": "bench -o bench.json",
}
LONG = ("demo", "bench", "launch")
"""In the slow set. Fast: small demos in `test_cli.py`, benchmarks in `test_bench.py`, and a launch
with a limit of its own in `test_distributed.py`."""


def test_every_command_is_watched():
    assert set(WORDS) == set(COMMANDS)


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=pytest.mark.slow if c in LONG else ()) for c in WORDS if c != "fit"],
)
def test_every_command_ends(place, command):
    folder, run = place
    answer = run(*WORDS[command].split(), limit=WATCHDOG * (6 if command in LONG else 1))
    assert answer.returncode == 0, answer.stderr
    words = WORDS[command].split()
    if "-o" in words:
        assert (folder / words[words.index("-o") + 1]).exists()


def test_a_fit_ends(place):
    folder, _ = place
    frame = pd.DataFrame({"x": [0.0, 1.0]})
    assert DAGP.load(folder / "model.dagp").predict(frame).shape == (2,)
    assert not (folder / "model.dagp.checkpoint").exists()
