"""Config files and options of `dagp fit`: what arrives at the estimator, and what is refused."""

import textwrap

import numpy as np
import pytest
from typer.testing import CliRunner

from dagp import DAGP, GP, Concrete, DeepGP, Noise, Uniform, kernels, means
from dagp.cli import app
from dagp.errors import FitError


@pytest.fixture
def fit(tmp_path, monkeypatch):
    """Run `dagp fit` with a config and options up to the fit; returns what it would fit."""
    rows = "".join(f"{i},{i % 3},{'AB'[i % 2]},2024-01-{i + 1:02d},{i * i},\n" for i in range(12))
    (tmp_path / "data.csv").write_text("t,x,site,day,y,l\n" + rows)

    def run(config, *more, target=True):
        seen = {}

        def stop(estimator, X, y, sample_weight=None, labels=None, log=None, index=None):
            seen.update(estimator.get_params(deep=False), X=X, y=y, w=sample_weight, labels=labels)
            raise FitError("seen")

        monkeypatch.setattr("dagp.cli.progress.fit_estimator", stop)
        words = ["fit", str(tmp_path / "data.csv"), "-o", str(tmp_path / "m.dagp"), *more]
        if config is not None:
            (tmp_path / "c.toml").write_text(textwrap.dedent(config))
            words += ["--config", str(tmp_path / "c.toml")]
        answer = CliRunner().invoke(app, words)
        lines = [line for line in answer.stderr.splitlines() if line.startswith("Error: ")]
        assert len(lines) == 1, answer.output
        assert "Traceback" not in answer.output
        assert answer.exit_code == (1 if seen else 2)
        return seen if seen else lines[0].removeprefix("Error: ").replace(f"{tmp_path}/", "")

    return run


ALL = """
[data]
target = "y"
features = ["t", "x"]
weights = "x2"
missing = "raise"
[model]
processes = 3
noise_process = true
kernel = "matern52"
noise = "laplace"
varying_noise = true
depth = 2
gate = "constant"
inducing = 7
inference = { temperature = [2.0, 0.1], entropy = false }
standardize = false
dtype = "float32"
[search]
starts = 3
max_iter = 11
tol = 0.5
seed = 4
batch_size = 6
"""


def test_everything_in_a_config_arrives(fit):
    seen = fit(ALL.replace('weights = "x2"', 'weights = "x"').replace('"t", "x"', '"t"'))
    np.testing.assert_array_equal(seen["X"], np.arange(12.0)[:, None])
    np.testing.assert_array_equal(seen["w"], np.arange(12) % 3)
    process = DeepGP(layers=2, kernel=kernels.Matern52(), noise_gp=GP(), noise="laplace")
    assert repr(seen["processes"]) == repr([process] * 3 + [Noise()])
    assert (seen["gate"], seen["inducing"], seen["n_init"], seen["max_iter"]) == (
        "constant",
        7,
        3,
        11,
    )
    assert seen["inference"] == Concrete(temperature=(2.0, 0.1), entropy=False)
    assert (seen["standardize"], seen["dtype"], seen["missing"]) == (False, "float32", "raise")
    assert (seen["tol"], seen["random_state"], seen["batch_size"]) == (0.5, 4, 6)


def test_defaults_are_those_of_the_library(fit):
    seen = fit(None, "-t", "y", "--features", "t")
    default = DAGP().get_params(deep=False)
    same = {"n_init", "max_iter", "tol", "batch_size", "gate", "inducing", "dtype", "missing"}
    assert {name: seen[name] for name in same} == {name: default[name] for name in same}
    assert (seen["n_processes"], seen["processes"]) == (2, GP())


def test_options_override_the_config(fit):
    config = ALL.replace('weights = "x2"\n', "")
    seen = fit(
        config, "--processes", "1", "--no-noise-process", "--kernel", "Squared_Exponential",
        "--noise", "student", "--constant-noise", "--depth", "1", "--gate", "gp", "--seed", "9",
        "--features", "x",
        "--starts", "2", "--max-iter", "5", "--tol", "0.1", "--labels", "l", "--inducing", "3",
    )  # fmt: skip
    expected = GP(kernel=kernels.SquaredExponential(), noise="student")
    assert repr(seen["processes"]) == repr(expected)
    assert (seen["n_processes"], seen["gate"], seen["random_state"]) == (1, None, 9)
    assert (seen["n_init"], seen["max_iter"], seen["tol"], seen["inducing"]) == (2, 5, 0.1, 3)
    np.testing.assert_array_equal(seen["X"][:, 0], np.arange(12) % 3)
    np.testing.assert_array_equal(seen["labels"], np.full(12, -1))


LIST = """
[data]
target = "y"
features = ["t", "x"]
[model]
kernel = "matern32"
gate = { layers = 2, kernel = "matern12" }
[[model.processes]]
kind = "gp"
count = 2
kernel = { sum = ["linear", { kind = "periodic", period = { value = 24.0, fixed = true } }] }
noise_std = { value = 0.1, prior = { kind = "log-normal", median = 0.1, std = 0.5 } }
mean = { kind = "linear", slope = 2.0 }
noise = "student"
degrees = { value = 4.0, fixed = true }
[[model.processes]]
layers = 3
noise_gp = { kernel = { kind = "rbf", lengthscale = [1.0], active = ["x"] } }
[[model.processes]]
kind = "noise"
shape = "uniform"
[[model.processes]]
kind = "uniform"
low = -1.0
high = 3.0
"""


def test_processes_that_differ(fit):
    seen = fit(LIST)
    one, two, deep, noise, uniform = seen["processes"]
    assert one is two
    assert seen["n_processes"] == 5
    assert one.kernel.second.period.frozen
    assert float(one.kernel.second.period.in_user_units) == pytest.approx(24.0)
    assert isinstance(one.kernel.first, kernels.Linear)
    assert float(one.noise_std.prior.median) == pytest.approx(0.1)
    assert isinstance(one.mean, means.Linear)
    assert (one.noise, one.degrees.frozen, deep.noise) == ("student", True, "gaussian")
    assert float(one.degrees.in_user_units) == pytest.approx(4.0)
    assert (type(deep), deep.layers, type(deep.kernel)) == (DeepGP, 3, kernels.Matern32)
    assert deep.noise_gp.kernel.active == (1,)
    assert (noise, uniform) == (Noise(shape="uniform"), Uniform(-1.0, 3.0))
    assert (seen["gate"].layers, type(seen["gate"].kernel)) == (2, kernels.Matern12)


def test_options_hold_for_every_process_of_a_list(fit):
    seen = fit(LIST, "--kernel", "matern12", "--depth", "1", "--noise-process")
    assert [type(p).__name__ for p in seen["processes"]] == ["GP"] * 3 + [
        "Noise",
        "Uniform",
        "Noise",
    ]
    assert all(isinstance(p.kernel, kernels.Matern12) for p in seen["processes"][:3])
    assert fit(LIST, "--processes", "auto")["n_processes"] == "auto"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("[data]\ntraget = 'y'", "c.toml, [data]: unknown key 'traget'. Did you mean 'target'?"),
        ("[modl]\ndepth = 1", "c.toml: unknown table 'modl'. Did you mean 'model'?"),
        ("target = 'y'", "c.toml: unknown key outside of tables, 'target'."),
        ("[model]\nstarts = 1", "c.toml, [model]: unknown key 'starts'. It belongs to [search]."),
        ("[model]\ndepth = 0", "[model]: depth must be a whole number of at least 1, got 0."),
        ("[model]\ndepth = true", "[model]: depth must be a whole number"),
        ("[search]\ntol = -1", "[search]: tol must be a number that is not negative, got -1."),
        ("[data]\nfeatures = 'x'", "[data]: features must be a list of column names, got 'x'."),
        ("[data]\nmissing = 'skip'", "missing must be 'raise' or 'drop', got 'skip'."),
        ("[model]\nprocesses = []", "processes must be a whole number of at least 1, 'auto' or"),
        ("[model]\nkernel = 'matern53'", "[model] kernel: there is no kernel 'matern53'. Did you"),
        ("[model]\nkernel = {kind = 'linear', period = 1}", "kernel: unknown key 'period'"),
        ("[model]\nkernel = {kind = 'white', variance = -1}", "kernel, variance: value must be"),
        ("[model]\nkernel = {period = 1}", "[model] kernel: the kernel needs a kind"),
        ("[model]\nkernel = {sum = ['white']}", "a list of two or more kernels"),
        ("[model]\ngate = 'flat'", "[model] gate: expected 'gp', 'constant' or a table"),
        ("[model]\nnoise = 'cauchy'", "noise must be 'gaussian' or 'student' or 'laplace', got"),
        (
            "[[model.processes]]\nnoise = 'studnt'",
            "1, noise: there is no noise 'studnt'. Did you mean 'student'?",
        ),
        ("[[model.processes]]\ndegrees = 3", '1: degrees are those of noise="student"'),
        ("[model]\ninference = {heat = 1}", "[model] inference: unknown key"),
        ("[[model.processes]]\nkind = 'gpp'", "[[model.processes]] 1: there is no process 'gpp'"),
        ("[[model.processes]]\nkind = 'noise'\nlow = 1", "1: unknown key 'low'"),
        ("[[model.processes]]\ncount = 0", "1: count must be a whole number of at least 1"),
        (
            "[[model.processes]]\nkernel = {kind = 'white', active = ['tt']}",
            "1, kernel, active: 'tt' is not an input. Did you mean 't'?",
        ),
        ("[columns]\nx = 'categry'", "[columns] 'x': there is no role 'categry'. Did you mean"),
        ("[columns]\nz = 'category'", "has no column 'z'"),
        ("[data]\ntarget = \n", "c.toml is not valid TOML: Invalid value (at line 2, column 10)."),
        ("[data]\ntarget = 'z'", "data.csv has no column 'z'."),
        ("[data]\nfeatures = ['x', 'x']", "c.toml, [data] features: column 'x' is listed twice."),
    ],
)
def test_mistakes_are_named_with_file_table_and_key(fit, config, said):
    target = () if "target" in config else ("-t", "y")
    features = () if "features" in config else ("--features", "t,x")
    assert said in fit(config, *target, *features)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--target must name the output column"),
        (("-t", "y", "--kernel", "mattern52"), "--kernel: there is no kernel 'mattern52'. Did you"),
        (("-t", "y", "--role", "site"), "--role must be NAME=ROLE, such as site=category"),
        (("-t", "y", "--role", "site=kategory"), "there is no role 'kategory'. Did you mean"),
        (("-t", "y", "--role", "sit=category"), "has no column 'sit'. Did you mean 'site'?"),
        (("-t", "y", "--config", "no.toml"), "There is no file no.toml; dagp init writes"),
        (("-t", "site"), "row 2, column 'site': 'A' is not a number."),
        (("-t", "y", "--role", "site=time"), "row 2, column 'site': 'A' is not a date"),
    ],
)
def test_mistakes_in_options_are_named(fit, options, said):
    assert said in fit(None, *options)


def test_roles_of_columns_arrive(fit):
    seen = fit(None, "-t", "y", "--role", "l=ignore", "--role", "x=category", "--role", "day=days")
    assert seen["columns"] == {"t": "number", "x": "category", "site": "category", "day": "days"}
    assert seen["X"].column_names == ["t", "x", "site", "day"]
    assert seen["X"]["x"].to_pylist()[:3] == ["0", "1", "2"]
    assert str(seen["X"].schema.field("day").type) == "timestamp[us]"
    seen = fit("[columns]\nl = 'ignore'\nsite = 'ignore'\nday = 'ignore'", "-t", "y")
    assert seen["columns"] is None
    assert seen["X"].shape == (12, 2)


def test_text_gives_advice(tmp_path):
    rows = "".join(f"{i},note {i},{i}\n" for i in range(12))
    (tmp_path / "d.csv").write_text("x,free text,y\n" + rows)
    words = ["fit", str(tmp_path / "d.csv"), "-t", "y", "-o", str(tmp_path / "m.dagp")]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 2
    assert len(answer.stderr.splitlines()) == 1
    assert (
        "column 'free text' holds text (12 different values in 12 rows, such as 'note 0'); "
        "--features or --role 'free text=ignore' leaves it out, --role 'free text=category' takes "
        "it as a category." in answer.stderr
    )


def test_dates_with_two_readings_give_advice(tmp_path):
    rows = "".join(f"{i},0{i % 3 + 1}/02/2024,{i}\n" for i in range(12))
    (tmp_path / "d.csv").write_text("x,day,y\n" + rows)
    words = ["fit", str(tmp_path / "d.csv"), "-t", "y", "-o", str(tmp_path / "m.dagp")]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 2
    assert "'day' holds dates such as '01/02/2024', in which day and month can be mistaken" in (
        answer.stderr
    )
