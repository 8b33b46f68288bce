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
    with tarfile.open(DATA / "recorded" / recorded.CAPTURES / "raw.tar.xz") as archive:
        return {
            member.name.removeprefix("raw/"): archive.extractfile(member).read().decode()
            for member in archive
            if member.isfile()
        }


def test_each_is_of_a_model_whose_configuration_is_here(captures):
    assert len(captures) == len(recorded.captures()) == 22
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
            assert {graph.split for graph in one.graphs} == {one.layers}
        else:
            assert not one.graphs and not one.cuda_graphs


def test_cuda_graphs_are_compiled_pieces_times_sizes(captures):
    name = "llama-bf16-32-layers"
    found = [captures[name + end].cuda_graphs for end in ("", "-default-sizes", "-8192-alone")]
    assert found == [33 * 22, 33 * 58, 33]


def test_a_damaged_one_is_one_sentence(tmp_path, monkeypatch):
    folder = tmp_path / "recorded" / recorded.CAPTURES
    folder.mkdir(parents=True)
    monkeypatch.setattr(recorded, "DATA", tmp_path)
    for text in (None, "[", '[{"name": "a"}]'):
        if text is not None:
            (folder / "captures.json").write_text(text)
        with pytest.raises(WorkbookError, match=r"is damaged\. Get it anew"):
            recorded.captures()
