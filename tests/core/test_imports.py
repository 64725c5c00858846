"""Imports of scikit-learn that are put off: used later as ever, and never in the user's way."""

import subprocess
import sys
from types import ModuleType

import pytest

from dagp.core.imports import deferred_imports

SCRIPT = """
import sys
from dagp import DAGP, GP, Noise, datasets, plot
assert not {"pandas", "scipy.stats", "scipy.signal", "pyarrow"} & set(sys.modules), "imported"
from sklearn.utils import fixes
assert fixes.pd.DataFrame({"a": [1]}).shape == (1, 1)
import pandas, scipy, scipy.stats
assert type(pandas) is type(sys) and pandas.DataFrame is fixes.pd.DataFrame
assert scipy.stats.norm.cdf(0) == 0.5
import numpy as np
model = DAGP(1, n_init=1, max_iter=12, tol=1e3, inducing=4, random_state=0)
frame = pandas.DataFrame({"x": np.linspace(0, 1, 12)})
model.fit(frame, np.sin(frame["x"]))
assert list(model.feature_names_in_) == ["x"]
"""


def test_unused_modules_are_imported_when_they_are_used():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Name of a module that has not been imported."""
    (tmp_path / "slow_to_import.py").write_text("value = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "slow_to_import"
    sys.modules.pop("slow_to_import", None)


def test_a_deferred_module_is_imported_on_first_use(module):
    with deferred_imports((module,)):
        import slow_to_import  # pyright: ignore[reportMissingImports]

        stand_in = slow_to_import
    assert module not in sys.modules
    assert stand_in.value == 3
    assert sys.modules[module] is not stand_in
    assert vars(sys.modules[module])["value"] == 3


def test_a_deferred_module_can_be_used_at_once(module):
    with deferred_imports((module,)):
        from slow_to_import import value  # pyright: ignore[reportMissingImports]

        assert type(sys.modules[module]) is ModuleType
    assert value == 3
    assert module in sys.modules


def test_modules_that_exist_or_cannot_be_found_are_left_alone():
    with deferred_imports(("json", "no_such_module", "no_such_package.part")):
        assert type(sys.modules["json"]) is ModuleType
        with pytest.raises(ModuleNotFoundError):
            import no_such_module  # pyright: ignore[reportMissingImports]  # noqa: F401
    assert type(sys.modules["json"]) is ModuleType


def test_an_error_inside_leaves_nothing_behind(module):
    with pytest.raises(ZeroDivisionError), deferred_imports((module,)):
        raise ZeroDivisionError
    assert module not in sys.modules
