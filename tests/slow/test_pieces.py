"""The witness of SGLang's compile step beside what the split probe sees of the same step."""

import json
import os
from collections import Counter

import pytest

from tests.sglang_wheels import NoWheel, fetch
from workbook.node.probe import overlay_env, run_probe

pytestmark = pytest.mark.slow
ASKED = '{"arch": "sm120", "capture_sizes": [4, 16], "hidden": 256, "num_layers": 3}'


@pytest.mark.parametrize("version", ["0.5.9", "0.5.12", "0.5.23"])
def test_the_witness_sees_the_pieces_that_there_are(node, embedded, tmp_path, version):
    try:
        folder = fetch(version)
    except NoWheel as problem:
        pytest.skip(f"SGLang {version} could not be fetched: {problem}")
    pieces = tmp_path / "pieces.jsonl"
    paths = overlay_env(node, embedded, 4)["PYTHONPATH"]
    env = {
        "PYTHONPATH": os.pathsep.join([str(folder), paths]),
        "WORKBOOK_CPU_SGLANG": "1",
        "WORKBOOK_PIECES": str(pieces),
    }
    found = run_probe(node, embedded, "split.py", [ASKED], timeout_s=300, patch_level=4, env=env)
    lines = [json.loads(line) for line in pieces.read_text().splitlines()]
    assert len(lines) == found["num_graphs"] == 1
    split = [piece for piece in found["pieces"] if piece["split"]]
    said = lines[0]
    assert (said["pieces"], said["split"]) == (len(found["pieces"]), len(split))
    assert said["compiled"] == len(found["pieces"]) - len(split)
    assert said["split_ops"] == {"workbook_toy.attention": len(split)}
    # by their last names, as the probe tells them
    short = Counter(name for piece in found["pieces"] for name in piece["operations"])
    assert said["operations"] == {
        "workbook.fp4_quantize.default": short["fp4_quantize.default"],
        "workbook_toy.attention": short["attention"],
    }
    assert said["rank"] is None
