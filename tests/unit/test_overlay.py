"""The overlay reaches every Python process below, hides nothing of the user's, and refuses code it does not know."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbook.boundary.levels import LEVELS
from workbook.node.probe import overlay_env
from workbook.paths import OVERLAY

PATCHES = OVERLAY / "workbook_overlay" / "patches"
KNOWN = OVERLAY / "workbook_overlay" / "known.json"
# Only a patch imports it, and a patch is imported with its target, which has imported torch.
WITH_TORCH = {"boundary"}


def python(code, *folders, **env):
    """Standard output of a Python under the overlay with more folders on its path."""
    path = os.pathsep.join([str(OVERLAY), *map(str, folders)])
    environment = os.environ | {"PYTHONPATH": path} | env
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_a_sitecustomize_of_the_users_own_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mine = 'ran'\n")
    assert python("print(mine)", tmp_path) == "ran"
    assert python("import sitecustomize; print(sitecustomize.__file__)", tmp_path) == str(
        tmp_path / "sitecustomize.py"
    )


def test_a_hook_acts_once_the_module_is_there_and_before_its_importer_sees_it(tmp_path):
    (tmp_path / "target.py").write_text("value = 1\n")
    code = (
        "from workbook_overlay.hook import after_import\n"
        "after_import('target', lambda module: setattr(module, 'value', module.value + 1))\n"
        "import importlib.util; importlib.util.find_spec('target')\n"
        "from target import value; import target; print(value, target.__loader__.__class__.__name__)"
    )
    assert python(code, tmp_path) == "2 SourceFileLoader"


FAKE = """
def fp4_quantize(input):
    return input
"""


def test_an_unknown_source_is_refused_by_file_and_function_and_nothing_is_patched(tmp_path):
    """The package here is a stub of FlashInfer's layout, made to be refused."""
    (tmp_path / "flashinfer").mkdir()
    (tmp_path / "flashinfer/__init__.py").write_text("from .fp4_quantization import fp4_quantize\n")
    (tmp_path / "flashinfer/fp4_quantization.py").write_text(FAKE)
    refused = python("import flashinfer", tmp_path, WORKBOOK_PATCH_LEVEL="3")
    assert "patch compiler-disable" in refused and "nothing was patched" in refused
    assert str(tmp_path / "flashinfer/fp4_quantization.py") in refused and "fp4_quantize" in refused


def test_a_missing_function_is_refused(tmp_path):
    (tmp_path / "flashinfer").mkdir()
    (tmp_path / "flashinfer/__init__.py").write_text("from . import fp4_quantization\n")
    (tmp_path / "flashinfer/fp4_quantization.py").write_text("")
    refused = python("import flashinfer", tmp_path, WORKBOOK_PATCH_LEVEL="3")
    assert "has no function fp4_quantize; nothing was patched" in refused


def test_a_level_alone_imports_no_torch_and_a_failing_overlay_hides_no_sitecustomize(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mine = 'ran'\n")
    code = "import sys; print(mine, 'torch' in sys.modules)"
    assert python(code, tmp_path, WORKBOOK_PATCH_LEVEL="4") == "ran False"
    assert python("print(mine)", tmp_path, WORKBOOK_PATCH_LEVEL="not a number") == "ran"


def test_the_table_of_levels_is_the_same_on_both_sides():
    shown = python("from workbook_overlay.patches import LEVELS; print(LEVELS)")
    assert eval(shown) == {one.level: one.patches for one in LEVELS}


def test_every_patch_of_the_table_is_a_module_with_targets_whose_sources_are_known():
    shown = python("import json; from workbook_overlay.patches import TARGETS; print(json.dumps(TARGETS))")
    targets, known = json.loads(shown), json.loads(KNOWN.read_text())
    assert set(targets) == {name for one in LEVELS for name in one.patches}
    assert all((PATCHES / f"{name}.py").is_file() for name in targets)
    assert set(known) == {
        one for modules in targets.values() for functions in modules.values() for one in functions
    }


def test_the_environment_keeps_what_was_on_the_path(node, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    assert overlay_env(node, patch_level=2) == {
        "PYTHONPATH": os.pathsep.join([str(OVERLAY), "/somewhere"]),
        "WORKBOOK_PATCH_LEVEL": "2",
    }


@pytest.mark.parametrize(
    "module", sorted({path.stem for path in Path(OVERLAY, "workbook_overlay").glob("*.py")} - WITH_TORCH)
)
def test_the_overlay_imports_without_torch(module):
    """A process that never touches FlashInfer must not pay for torch."""
    name = "workbook_overlay" if module == "__init__" else f"workbook_overlay.{module}"
    assert python(f"import sys, {name}; print('torch' in sys.modules)") == "False"
