"""The public surface: names, documentation, and what importing does."""

import gc
import inspect
import subprocess
import sys

import pytest

import dagp
from dagp import datasets, dynamics, kernels, means, plot, scoring
from dagp.core.gc import gc_paused

MODULES = (dagp, kernels, datasets, dynamics, means, plot, scoring)
HIDDEN_EXAMPLES = {"Kernel", "Mean", "Sum", "Product", "Centred", "InUnits"}
"""Interfaces and what operators make: the module's own example shows them at work."""


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_every_public_name_is_documented(module):
    for name in module.__all__:
        thing = getattr(module, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing):
            methods = inspect.getmembers(thing, inspect.isfunction)
            own = [(n, m) for n, m in methods if m.__module__.startswith("dagp") and n[0] != "_"]
            for method_name, method in own:
                assert inspect.getdoc(method), f"{name}.{method_name}"


@pytest.mark.parametrize(
    "module", (dagp, kernels, datasets, dynamics, means, scoring), ids=lambda m: m.__name__
)
def test_every_public_class_and_function_shows_an_example(module):
    for name in set(module.__all__) - HIDDEN_EXAMPLES:
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert ">>>" in inspect.getdoc(thing), name


def test_importing_computes_nothing_and_brings_no_optional_package():
    code = (
        "import sys, jax; from dagp import DAGP, datasets;"
        "assert not jax._src.xla_bridge._backends, 'importing started a JAX backend';"
        "extra = {'matplotlib', 'typer', 'rich', 'xarray', 'skpro'} & set(sys.modules);"
        "assert not extra, extra"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("wish", ["enable", "disable"])
def test_importing_leaves_the_garbage_collector_as_it_was(wish):
    code = (
        f"import gc; gc.{wish}(); before = gc.isenabled(); from dagp import DAGP;"
        "assert gc.isenabled() == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("wish", [gc.enable, gc.disable])
def test_a_wish_about_the_garbage_collector_outlives_its_pause(wish):
    before = gc.isenabled()
    try:
        wish()
        wished = gc.isenabled()
        with pytest.raises(RuntimeError), gc_paused():
            assert not gc.isenabled()
            raise RuntimeError
        assert gc.isenabled() == wished
    finally:
        (gc.enable if before else gc.disable)()


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="nothing_like_it"):
        dagp.nothing_like_it  # noqa: B018
