"""Puts off imports that scikit-learn makes and that most programs never use."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

UNUSED = "scipy.stats", "pandas"
"""Imported by ``sklearn.base`` for functions that are rarely called; a third of the time that it
takes to import `DAGP`."""


class _Deferred(ModuleType):
    """Stands for a module, which is imported when something is first asked of it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.imported(), name)

    def imported(self) -> ModuleType:
        """The module itself."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)


@contextmanager
def deferred_imports(names: tuple[str, ...] = UNUSED) -> Iterator[None]:
    """Inside the ``with`` block or the decorated function, ``import NAME`` binds a module that is
    imported when it is first used. Afterwards ``import NAME`` means what it always means; modules
    that exist already, or cannot be found, are left alone."""
    placed = [_place(name) for name in names if name not in sys.modules]
    try:
        yield
    finally:
        for module in placed:
            if module is not None and sys.modules.get(module.__name__) is module:
                del sys.modules[module.__name__]


def _place(name: str) -> _Deferred | None:
    """A stand-in for the module, where it can be found."""
    try:
        # Imports the packages that it is part of.
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    module = _Deferred(name)
    # An import statement looks for it to see that the module is complete.
    module.__spec__ = spec
    sys.modules[name] = module
    return module
