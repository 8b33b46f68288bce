"""What an exception of Dynamo says is kept without the folders of the machine it was raised on."""

import sys
from pathlib import Path

import pytest

from workbook.paths import OVERLAY


@pytest.fixture
def explain(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(OVERLAY))
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    from workbook_overlay import explain

    return explain


def test_a_message_keeps_no_folder_of_the_machine(explain, tmp_path):
    quoted = f'# File "{tmp_path}/site-packages/sglang/srt/models/llama.py", line 7'
    told = explain.explain(RuntimeError(quoted))
    assert told["message"] == '# File "sglang/srt/models/llama.py", line 7'


def test_a_message_without_a_path_stays_as_it_is(explain):
    assert explain.explain(RuntimeError("a / b"))["message"] == "a / b"


def test_the_longest_folder_goes_first(explain, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "inner"), ""])
    assert explain.without_roots(f"{tmp_path}/inner/module.py") == "module.py"
    assert explain.roots()[0] == str(Path(tmp_path / "inner").resolve())
