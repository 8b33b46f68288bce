"""The report as a browser shows it: quiet, complete, and no wider than the window."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.unit.report_samples import bench, passed, trace
from workbook.report.chain import chain_chart
from workbook.report.charts import bench_table, throughput_chart
from workbook.report.html import render
from workbook.report.tables import diff_block, outcome_matrix, outcome_table
from workbook.types import PatchDiff, Stage, StageOutcome, Status

pytestmark = pytest.mark.browser

LOG = "<script>document.title = 'taken over'</script><img src=x onerror=alert(1)>" + "x" * 500


def sample_displays() -> list[Any]:
    traces = [trace(0), trace(1, 6), passed(4)]
    points = pd.concat([bench({1: [100.0, 101.0], 256: [900.0]}, label) for label in ("eager", "piecewise")])
    cell = StageOutcome(label="level 0", stage=Stage.TRACE, status=Status.GRAPH_BREAK, evidence="#log")
    return [
        chain_chart(traces[:1]),
        chain_chart(traces),
        outcome_table(traces),
        outcome_matrix([cell]),
        throughput_chart(points),
        bench_table(points),
        diff_block(PatchDiff(patch="p", target="m:f", source_sha256="0", diff="@@ -1 +1 @@\n-" + "y" * 300)),
    ]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small executed notebook, rendered."""
    folder = tmp_path_factory.mktemp("report")
    cells = [new_markdown_cell("# A sample\n\nNothing here was measured.")]
    for index, shown in enumerate(sample_displays()):
        data = {"text/html": shown._repr_html_(), "text/plain": repr(shown)}
        output = new_output("execute_result", data=data, execution_count=1)
        cells += [new_markdown_cell(f"## Part {index}"), new_code_cell("show()", outputs=[output])]
    logged = [
        new_output("stream", name="stderr", text=LOG),
        new_output("display_data", data={"text/html": LOG}),
    ]
    cells.append(new_code_cell("print(log)", outputs=logged))
    nbformat.write(new_notebook(cells=cells), folder / "sample.ipynb")
    return render(folder / "sample.ipynb", folder / "sample.html", title="A title")


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_is_quiet_complete_and_fits(
    report: Path, visit: Callable[..., Any], width: int, tmp_path: Path
) -> None:
    page = visit(report, width)
    assert page.driver.title == "A title"
    assert page.console == ()
    assert page.requests == ()
    assert page.ask("performance.getEntriesByType('resource').map(r => r.name)") == []
    assert page.ask("window.innerWidth") == width
    assert page.ask("document.documentElement.scrollWidth") <= width
    images = page.ask("[...document.images].map(i => [i.naturalWidth, i.alt, i.complete])")
    assert len(images) == 3
    assert all(wide > 0 and alt and complete for wide, alt, complete in images)


def test_contents_lead_somewhere(report: Path, visit: Callable[..., Any]) -> None:
    page = visit(report)
    page.driver.find_element("link text", "Part 3").click()
    assert page.ask("document.querySelector(':target').tagName") == "H2"
    assert page.ask("document.querySelector('nav ol').children.length") == len(sample_displays())


def test_data_and_code_open_without_script(report: Path, visit: Callable[..., Any]) -> None:
    page = visit(report)
    summary = page.driver.find_element("css selector", "figure details > summary")
    table = page.driver.find_element("css selector", "figure details table")
    assert not table.is_displayed()
    summary.click()
    assert table.is_displayed()


def test_figures_can_be_read_at_the_size_they_are_shown(report: Path, visit: Callable[..., Any]) -> None:
    page = visit(report)
    shown = page.ask("[...document.images].map(i => [i.width, i.naturalWidth])")
    assert all(width == natural == 900 for width, natural in shown)


def test_the_policy_stops_what_would_get_past_the_cleaning(
    report: Path, visit: Callable[..., Any], tmp_path: Path
) -> None:
    hole = "<script>document.title = 'taken over'</script><img src='http://127.0.0.1:9/x.png'></main>"
    broken = tmp_path / "broken.html"
    broken.write_text(report.read_text(encoding="utf-8").replace("</main>", hole), encoding="utf-8")
    page = visit(broken)
    assert page.driver.title == "A title"
    assert sum("Content Security Policy" in said for said in page.console) == 2
