"""A sweep on a node over ssh: the client runs there, its raw records come here. SGLang's benchmark is a stand-in."""

from pathlib import Path

import pytest

from workbook.errors import UsageError
from workbook.serving.bench import Plan, Target, run_bench
from workbook.serving.endpoint import find_endpoint

pytestmark = pytest.mark.ssh

FAKE = Path(__file__).parents[1] / "data" / "fake_sglang"


def test_a_sweep_runs_on_the_node_and_its_records_come_here(far, tmp_path):
    far.put(FAKE, far.place(FAKE))
    targets = [Target(label, "http://127.0.0.1:1", "org/model") for label in ("a", "b")]
    plan = Plan((1, 8), input_tokens=16, output_tokens=8, repeats=2, clients=2)
    found = run_bench(
        far, targets, plan, raw_dir=tmp_path / "raw", run_id="run", env={"PYTHONPATH": str(far.place(FAKE))}
    )
    assert [(one.label, one.concurrency, one.repeat, one.clients) for one in found.points] == [
        ("a", 1, 0, 1), ("b", 1, 0, 1), ("a", 8, 0, 2), ("b", 8, 0, 2),
        ("b", 1, 1, 1), ("a", 1, 1, 1), ("b", 8, 1, 2), ("a", 8, 1, 2),
    ]  # fmt: skip
    assert all(one.usable for one in found.points)
    assert len(list((tmp_path / "raw" / "a-b-r0").glob("*.jsonl"))) == 12
    assert far.exists(far.place(tmp_path / "raw" / "a-b-r0" / "a-c8-r1-s1.jsonl"))


def test_an_address_is_the_one_that_the_node_sees(far):
    with pytest.raises(
        UsageError, match=r"http://127\.0\.0\.1:1 gives node far no answer: .*Connection refused"
    ):
        find_endpoint(far, "http://127.0.0.1:1")
