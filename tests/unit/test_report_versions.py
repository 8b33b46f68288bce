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
    assert [row[:2] for row in table.rows] == [
        ("0", "0.6.3 to 0.6.11.post1"),
        ("0", "0.6.14"),
        ("4", "0.6.3"),
    ]
    assert table.rows[0][2].text == "posix.stat in f" and table.rows[1][2].text == "posix.stat in other"
    assert "Recorded on 2026-11-30" in table.caption and table.columns[2] == "torch 2.13.0"


def test_a_cell_that_is_not_there_is_a_gap():
    cells = [cell("0.6.3"), cell("0.6.3", torch="2.9.1+cu128"), cell("0.7.4")]
    rows = where_it_stops(cells, TOLD, "flashinfer.x").rows
    assert [row[1] for row in rows] == ["0.6.3", "0.7.4"]
    assert rows[1][2].text == "–" and rows[1][3].text == "posix.stat in f"


def test_an_entry_tells_all_its_stops_and_how_often_level_4_passes():
    cells = [
        cell("0.6.3"),
        cell("0.7.4", operation="datetime.now"),
        cell("0.6.3", level=4, operation=None),
        cell("0.7.4", level=4, operation="Tensor.data_ptr"),
    ]
    ((entry, stops, passed),) = by_entry(cells, TOLD).rows
    assert (entry.text, stops.text, passed.text) == ("flashinfer.x", "posix.stat, datetime.now", "1 of 2")


def test_what_a_gpu_said():
    found = [
        ValueOutcome(
            entry="a", status=Status.WRONG_OUTPUT, message="wrote nothing", unwritten=(1.0, 0.25), equal=True
        ),
        ValueOutcome(entry="b", status=Status.NOT_SUPPORTED_HERE, message="no GPU"),
    ]
    first, second = on_a_gpu(found, TOLD).rows
    assert first[2:4] == ("100%, 25%", "equal") and second[2:4] == ("–", "–")
    assert first[5].text == "–"


def test_hostile_text_is_escaped():
    html = where_it_stops([cell("0.6.3", operation=HOSTILE)], TOLD, "flashinfer.x")._repr_html_()
    assert "<script" not in html
