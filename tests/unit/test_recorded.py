"""The recorded captures: whole, of known models, and what the raw logs beside them say."""

import json
import re
import tarfile

import pytest

from workbook import recorded
from workbook.errors import WorkbookError
from workbook.paths import DATA
from workbook.serving import model_configs
from workbook.types import CaptureEnd, CaptureMode, RealCapture, SplitGraph


@pytest.fixture(scope="module")
def captures() -> dict[str, RealCapture]:
    return {one.name: one for one in recorded.captures()}


@pytest.fixture(scope="module")
def raw() -> dict[str, str]:
    found = {}
    for name in ("raw.tar.xz", "raw-level5.tar.xz"):
        with tarfile.open(DATA / "recorded" / recorded.CAPTURES / name) as archive:
            found |= {
                member.name.removeprefix("raw/"): archive.extractfile(member).read().decode()
                for member in archive
                if member.isfile()
            }
    return found


def test_each_is_of_a_model_whose_configuration_is_here(captures):
    assert len(captures) == len(recorded.captures()) == 27
    assert all(model_configs.find(one.checkpoint) for one in captures.values())
    assert all(one.checkpoint in one.argv for one in captures.values())
    assert (
        recorded.provenance(recorded.CAPTURES).date
        in (DATA / "recorded" / recorded.CAPTURES / "README.md").read_text()
    )


def test_they_say_what_the_raw_files_say(captures, raw):
    for one in captures.values():
        log = raw[f"{one.name}/server.log"]
        told = [json.loads(line) for line in raw.get(f"{one.name}/pieces.jsonl", "").splitlines()]
        graphs = [SplitGraph(**{key: line[key] for key in SplitGraph.model_fields}) for line in told]
        assert list(one.graphs) == graphs, one.name
        sizes = re.search(r"(?:graph num tokens|\[BCG\] Capture num tokens:) (\[[\d, ]*\])", log)
        assert list(one.capture_sizes) == (json.loads(sizes[1]) if sizes else []), one.name
        assert all(guard in log for guard in one.recompiles), one.name
        took = re.search(
            r"Capture piecewise CUDA graph end\. Time elapsed: ([\d.]+) s\. mem usage=([\d.-]+) GB", log
        )
        assert (took is not None) == (one.outcome is CaptureEnd.CAPTURED), one.name
        if took:
            assert one.capture_s == float(took[1])
        if took and one.alone:
            assert one.graph_gib == pytest.approx(float(took[2]), abs=0.011), one.name
        if one.fault:
            assert f"{one.fault.type}: {one.fault.message}" in log, one.name
        assert one.reason in log


def test_an_end_has_what_belongs_to_it(captures):
    for one in captures.values():
        assert (one.outcome is CaptureEnd.DIED) == (one.fault is not None)
        assert (one.outcome is CaptureEnd.SWITCHED_OFF) == bool(one.reason)
        if one.outcome is CaptureEnd.CAPTURED and one.mode is CaptureMode.PIECEWISE:
            assert len(one.recompiles) == len(one.graphs) - 1
            split_at = (
                2 if one.env.get("WORKBOOK_PATCH_LEVEL") == "5" else 1
            )  # a layer: attention, its indexer
            assert {graph.split for graph in one.graphs} == {split_at * one.layers}
        else:
            assert not one.graphs and not one.cuda_graphs


def test_cuda_graphs_are_compiled_pieces_times_sizes(captures):
    name = "llama-bf16-32-layers"
    found = [captures[name + end].cuda_graphs for end in ("", "-default-sizes", "-8192-alone")]
    assert found == [33 * 22, 33 * 58, 33]


@pytest.fixture(scope="module")
def answers(raw) -> dict[str, dict]:
    """By server: prompt -> what it answered; of several prompts at once, each by its number."""
    return {
        name.removeprefix("glm-5-bf16-").removesuffix("/answers.json"): {
            prompt + (f", number {number}" if isinstance(told, list) else ""): one
            for prompt, told in json.loads(text).items()
            for number, one in enumerate(told if isinstance(told, list) else [told], 1)
        }
        for name, text in raw.items()
        if name.endswith("/answers.json")
    }


@pytest.fixture(scope="module")
def compared() -> list[dict]:
    return json.loads((DATA / "recorded" / recorded.CAPTURES / "level5-answers.json").read_text())


def test_level_5s_answers_are_compared_as_the_raw_ones_say(answers, compared):
    assert len(compared) == 93
    for row in compared:
        assert answers[row["server"]][row["prompt"]]["cached"] == row["cached"]
        for pair, told in row["pairs"].items():
            one, other = (answers[name][row["prompt"]] for name in pair.split(" / "))
            assert len(one["tokens"]) == len(other["tokens"]) == 32
            same = [a == b for a, b in zip(one["tokens"], other["tokens"], strict=True)]
            assert told["equal_tokens"] == [*same, False].index(False)
            apart = max(abs(a - b) for a, b in zip(one["looked_at"], other["looked_at"], strict=True))
            assert told["logprob"] == pytest.approx(apart, abs=1e-4)


def test_up_to_what_the_indexer_keeps_level_5_equals_the_same_code_run_eagerly(compared):
    exact = {"equal_tokens": 32, "logprob": 0.0}
    short = [row for row in compared if not re.match(r"3\d\d\d", row["prompt"])]
    pairs = [row["pairs"]["level5 / as-piecewise"] for row in short if row["server"] == "level5"]
    assert pairs == [exact] * 39
    again = [
        row["pairs"]["3-layers-reference-again / 3-layers-reference"]
        for row in short
        if "3-" in row["server"]
    ]
    assert again == [exact] * 39
    assert min(row["another_first_token"]["logprob"] for row in short if "another_first_token" in row) > 1


def test_beyond_it_level_5_is_nearer_to_the_reference_than_a_wrong_choice(compared):
    found = [
        [
            row["pairs"][f"3-layers-{name} / 3-layers-reference"]["logprob"]
            for name in ("level5", "wrong-choice")
        ]
        for row in compared
        if row["server"] == "3-layers-level5" and re.match(r"3\d\d\d after", row["prompt"])
    ]
    assert len(found) == 2 and all(3 * ours < wrong for ours, wrong in found)


def test_prefills_ran_in_graphs_at_level_5_alone(raw):
    for server, expected in (("level5", {True, False}), ("reference", {False}), ("as-piecewise", {False})):
        lines = re.findall(
            r"Prefill batch.*#new-token: (\d+),.*cuda graph: (\w+)", raw[f"glm-5-bf16-{server}/server.log"]
        )
        assert {graph == "True" for _, graph in lines} == expected
        if server == "level5":  # the log counts whole pages of 64 tokens
            assert all(graph == "True" for tokens, graph in lines if int(tokens) <= 256)


def test_a_damaged_one_is_one_sentence(tmp_path, monkeypatch):
    folder = tmp_path / "recorded" / recorded.CAPTURES
    folder.mkdir(parents=True)
    monkeypatch.setattr(recorded, "DATA", tmp_path)
    for text in (None, "[", '[{"name": "a"}]'):
        if text is not None:
            (folder / "captures.json").write_text(text)
        with pytest.raises(WorkbookError, match=r"is damaged\. Get it anew"):
            recorded.captures()
