"""SGLang's compile step as its older releases have it: under other names, with the same outcome."""

import os

import pytest

from tests.sglang_wheels import NoWheel, fetch
from workbook.node.probe import overlay_env, run_probe

pytestmark = pytest.mark.slow
ASKED = '{"arch": "sm120", "capture_sizes": [4, 16], "hidden": 256, "num_layers": 3}'


@pytest.mark.parametrize("version", ["0.5.9", "0.5.12", "0.5.16"])
@pytest.mark.parametrize(("level", "pieces"), [(0, 0), (4, 7)])
def test_the_compile_step_of_an_older_sglang(node, embedded, version, level, pieces):
    try:
        folder = fetch(version)
    except NoWheel as problem:
        pytest.skip(f"SGLang {version} could not be fetched: {problem}")
    paths = overlay_env(node, embedded, level)["PYTHONPATH"]
    env = {"PYTHONPATH": os.pathsep.join([str(folder), paths]), "WORKBOOK_CPU_SGLANG": "1"}
    found = run_probe(node, embedded, "split.py", [ASKED], timeout_s=300, patch_level=level, env=env)
    assert (found["import_error"], found["versions"]["sglang"]) == (None, version)
    assert len(found["pieces"]) == pieces
    assert (found["error"] is None) == (level == 4)
