"""Level 4's operator on a real GPU."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workbook.node.probe import overlay_env

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no GPU on this machine"),
]


def test_the_fake_gives_and_refuses_what_the_real_call_does(node, embedded):
    script = Path(__file__).with_name("compare_shapes.py")
    done = subprocess.run(
        [sys.executable, script],
        env=os.environ | overlay_env(node, embedded, 4),
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["both_succeed"] > 0 and found["differ"] == []
