"""Act around the import of a module: before it is found, or after its body has run."""

import importlib.abc
import sys
from collections.abc import Callable

Before = Callable[[], None]
After = Callable[[object], None]

_before: dict[str, list[Before]] = {}
_after: dict[str, list[After]] = {}


def before_import(name: str, act: Before) -> None:
    """Call `act()` once, just before the module `name` is looked for."""
    _before.setdefault(name, []).append(act)
    _install()


def after_import(name: str, act: After) -> None:
    """Call `act(module)` once the body of the module `name` has run, before its importer sees it."""
    _after.setdefault(name, []).append(act)
    _install()


class _Loader(importlib.abc.Loader):
    """The module's own loader, followed by what was registered for it."""

    def __init__(self, loader, acts):
        self._loader, self._acts = loader, acts

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader  # the module shall look untouched
        self._loader.exec_module(module)
        for act in self._acts:
            act(module)

    def __getattr__(self, name):
        return getattr(self._loader, name)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        for act in _before.pop(name, ()):
            act()
        acts = _after.get(name)  # kept: a library may look a module up without importing it
        if acts is None:
            return None
        spec = _find(name, path)
        if spec is None or spec.loader is None:
            return None
        spec.loader = _Loader(spec.loader, acts)
        return spec


def _find(name, path):
    for finder in sys.meta_path:
        if not isinstance(finder, _Finder):
            spec = finder.find_spec(name, path, None)
            if spec is not None:
                return spec
    return None


def _install():
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
