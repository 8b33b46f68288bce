"""Tables over versions: alike versions share a row, what is missing is a gap, a poison that stayed is shown."""

from tests.unit.report_samples import HOSTILE
from workbook.report.versions import by_entry, on_a_gpu, where_it_stops
from workbook.types import MatrixCell, ProcessState, Provenance, Status, ValueOutcome

TOLD = Provenance(date="2026-11-30", hardware="2 cores", versions="torch 2.9.1", made_by="x", commit="abc")


def cell(flashinfer, level=0, torch="2.13.0+cpu", operation="posix.stat", blamed="m:f:1", **more):
    values = {"entry": "flashinfer.x", "process_state": ProcessState.WARM} | more
    status = values.pop("status", Status.DYNAMO_UNSUPPORTED if operation else Status.OK)
    return MatrixCell(
        stack="embedded", torch=torch, python="3.11.7", flashinfer=flashinfer, arch="sm120", patch_level=level,
        status=status, operation=operation, blamed=blamed if operation else None, seconds=1.0, **values,
    )  # fmt: skip


def test_versions_that_end_alike_share_a_row_in_their_own_order():
    cells = [
        cell("0.6.11.post1", blamed="m:f:9"),
        cell("0.6.3"),
        cell("0.6.14", blamed="m:other:1"),
        cell("0.6.3", level=4, operation=None),
        cell("0.6.3", process_state=ProcessState.COLD, operation="datetime.now"),
    ]
    table = where_it_stops(cells, TOLD, "flashinfer.x")
    assert [row[:3] for row in table.rows] == [
        ("0", "0.6.3 to 0.6.11.post1", "2.13.0"),
        ("0", "0.6.14", "2.13.0"),
        ("4", "0.6.3", "2.13.0"),
    ]
    assert [row[5].text for row in table.rows] == ["f", "other", "–"]
    assert {row[4].text for row in table.rows[:2]} == {"posix.stat"}
    assert "Recorded on 2026-11-30" in table.caption


def test_torches_that_end_alike_share_a_row_too():
    torches = ("2.13.0+cpu", "2.9.1+cu128", "2.14.1+cu130")
    cells = [cell("0.6.3", torch=one) for one in torches[:2]] + [
        cell("0.6.3", torch=torches[2], operation="open")
    ]
    rows = where_it_stops(cells, TOLD, "flashinfer.x").rows
    assert [(row[2], row[4].text) for row in rows] == [("2.9.1 to 2.13.0", "posix.stat"), ("2.14.1", "open")]


def test_a_cell_that_is_not_there_is_a_gap():
    cells = [cell("0.6.3"), cell("0.6.3", torch="2.9.1+cu128"), cell("0.7.4")]
    rows = where_it_stops(cells, TOLD, "flashinfer.x").rows
    assert [row[1:3] for row in rows] == [
        ("0.6.3", "2.9.1 to 2.13.0"),
        ("0.7.4", "2.9.1"),
        ("0.7.4", "2.13.0"),
    ]
    assert [row[4].text for row in rows] == ["posix.stat", "–", "posix.stat"]


def test_an_entry_tells_all_its_stops_and_how_often_level_4_passes():
    cells = [
        cell("0.6.3"),
        cell("0.7.4", operation="datetime.now"),
        cell("0.6.3", level=4, operation=None),
        cell("0.7.4", level=4, operation="Tensor.data_ptr"),
    ]
    ((entry, stops, passed),) = by_entry(cells, TOLD).rows
    assert (entry.text, stops.text, passed.text) == ("x", "posix.stat, datetime.now", "1 of 2")


def test_what_a_gpu_said():
    found = [
        ValueOutcome(
            entry="a", status=Status.WRONG_OUTPUT, message="wrote nothing", unwritten=(1.0, 0.25), equal=True
        ),
        ValueOutcome(entry="b", status=Status.NOT_SUPPORTED_HERE, message="no GPU"),
    ]
    first, second = on_a_gpu(found, TOLD).rows
    assert first[2:4] == ("100%, 25%", "–") and second[2:4] == ("–", "–")
    assert first[5].text == "–"


def test_hostile_text_is_escaped():
    html = where_it_stops([cell("0.6.3", operation=HOSTILE)], TOLD, "flashinfer.x")._repr_html_()
    assert "<script" not in html
