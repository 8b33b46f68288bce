"""First on PYTHONPATH: switches the overlay on in every process below, then runs the user's own sitecustomize."""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

import workbook_overlay

HERE = Path(__file__).resolve().parent


def run_next_sitecustomize() -> None:
    """Python imports one sitecustomize only; the one that this file hides still has to run."""
    elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    workbook_overlay.activate()
finally:
    run_next_sitecustomize()
