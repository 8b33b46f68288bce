"""The page is one file that loads nothing and runs nothing, whatever the notebook displayed."""

import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, new_raw_cell

from tests.unit.report_samples import HOSTILE, bench, passed, trace
from tests.unit.test_report_text import Seen
from workbook.errors import WorkbookError
from workbook.report.chain import chain_chart
from workbook.report.charts import bench_table, throughput_chart
from workbook.report.html import first_line, render
from workbook.report.sanitize import clean
from workbook.report.tables import outcome_table

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
FOREIGN = """
<script>alert(1)</script><img src=x onerror="alert(1)"><img src="http://example.org/a.png">
<a href="javascript:alert(1)">one</a><a href="//example.org">two</a><iframe src="http://example.org"></iframe>
<link rel="stylesheet" href="http://example.org/a.css"><style>p { display: none }</style>
<form action="x"></form>
<svg onload="alert(1)"><circle/></svg><meta http-equiv="refresh" content="0"><base href="http://example.org">
<p style="position:fixed;background-image:url(http://example.org);color:red" onclick="alert(1)">kept</p>
"""


def page(tmp_path: Path, *cells: nbformat.NotebookNode, title: str = "A title") -> str:
    notebook = tmp_path / "notebook.ipynb"
    nbformat.write(new_notebook(cells=list(cells)), notebook)
    return render(notebook, tmp_path / "out" / "page.html", title=title).read_text(encoding="utf-8")


def displayed(data: dict[str, str], source: str = "shown") -> nbformat.NotebookNode:
    return new_code_cell(source, outputs=[new_output("display_data", data=data)])


def assert_harmless(markup: str) -> None:
    for tag, attributes in Seen(markup).tags:
        assert tag not in {"script", "iframe", "form", "svg", "base", "object", "embed"}
        assert not [name for name in attributes if name.startswith("on")]
        assert re.match(r"data:image/", attributes.get("src") or "data:image/"), attributes
        assert not re.match(r"\s*(javascript|data|file):|//", attributes.get("href") or "") or tag == "link"
        assert "url(" not in (attributes.get("style") or "")


def test_the_page_holds_figures_and_tables_and_nothing_from_outside(tmp_path: Path) -> None:
    shown = [
        chain_chart([trace()]),
        chain_chart([trace(0), passed(4)]),
        outcome_table([trace()]),
        throughput_chart(bench({1: [1.0]})),
        bench_table(bench({1: [1.0]})),
    ]
    text = page(tmp_path, *(displayed({"text/html": one._repr_html_()}) for one in shown))
    seen = Seen(text)
    assert_harmless(text)
    assert [tag for tag, _ in seen.tags].count("figure") == 3
    assert all(attributes["alt"] for tag, attributes in seen.tags if tag == "img")
    assert ("meta", {"http-equiv": "Content-Security-Policy", "content": POLICY}) in seen.tags
    assert "http" not in re.sub(r"http-equiv|data:[^\"]*", "", text)
    for one in shown:
        # What is escaped at its source must come through the cleaning unharmed.
        assert Seen(one._repr_html_()).text in seen.text


def test_foreign_markup_is_cleaned_wherever_it_stands(tmp_path: Path) -> None:
    text = page(
        tmp_path,
        displayed({"text/html": FOREIGN}),
        displayed({"text/markdown": FOREIGN}),
        displayed({"image/png": '"><script>alert(1)</script>'}),
        displayed({"application/javascript": "alert(1)", "text/plain": "a script"}),
        new_markdown_cell(FOREIGN + "\n\n[link](javascript:alert(1)) ![picture](http://example.org/a.png)"),
        new_raw_cell(FOREIGN),
    )
    assert_harmless(text)
    assert "a script" in text
    assert text.count("kept") >= 4
    assert "display: none }" not in clean(FOREIGN)
    assert "(image left out)" in clean(FOREIGN)


def test_streams_errors_and_text_are_escaped_in_full(tmp_path: Path) -> None:
    outputs = [
        new_output("stream", name="stdout", text=HOSTILE),
        new_output("stream", name="stderr", text=HOSTILE),
        new_output("error", ename="E", evalue="", traceback=[HOSTILE, "\x1b[31mlast\x1b[0m"]),
        new_output("display_data", data={"text/plain": HOSTILE}),
    ]
    text = page(tmp_path, new_code_cell(HOSTILE, outputs=outputs), title=HOSTILE)
    assert_harmless(text)
    assert Seen(text).text.count("<script>alert(1)</script>") >= 6
    assert "\x1b" not in text
    assert "\x00" not in text
    assert "\u202e" not in text
    assert "\nlast</pre>" in text


def test_code_is_collapsed_and_parameters_are_named(tmp_path: Path) -> None:
    text = page(
        tmp_path,
        new_code_cell("a = 1", metadata={"tags": ["parameters"]}),
        new_code_cell("a = 2", metadata={"tags": ["injected-parameters"]}),
        new_code_cell("\n# Trace the call\ntrace()"),
        new_code_cell(""),
    )
    seen = Seen(text)
    assert [tag for tag, _ in seen.tags].count("details") == 3
    assert not [attributes for tag, attributes in seen.tags if tag == "details" and "open" in attributes]
    for summary in ("Parameters", "Parameters of this run", "Code: <code>Trace the call</code>"):
        assert f"<summary>{summary}</summary>" in text


def test_first_line() -> None:
    assert first_line("\n  # What it does\ncode()") == "What it does"
    assert first_line("") == ""
    assert len(first_line("x" * 500)) == 90


def test_contents_lead_to_the_headings(tmp_path: Path) -> None:
    cells = [new_markdown_cell(f"## Part *{n}* & more\n\ntext\n\n```\n## no heading\n```") for n in range(3)]
    text = page(tmp_path, new_markdown_cell("# The heading"), *cells, title="Unused as a heading")
    seen = Seen(text)
    targets = {attributes["id"] for tag, attributes in seen.tags if tag == "h2"}
    nav = Seen(text[text.index("<nav") : text.index("</nav>")])
    links = [attributes["href"] for tag, attributes in nav.tags if tag == "a"]
    assert len(links) == 3
    assert {f"#{target}" for target in targets} == set(links)
    assert "Part 0 & more" in nav.text
    assert [tag for tag, _ in seen.tags].count("h1") == 1
    assert text.index("The heading") < text.index("<nav")


def test_a_notebook_without_a_heading_gets_the_title(tmp_path: Path) -> None:
    text = page(tmp_path, new_markdown_cell("text"), title="Less < more")
    assert "<title>Less &lt; more</title>" in text
    assert "<h1>Less &lt; more</h1>" in text
    assert "<nav" not in text


def test_the_same_notebook_gives_the_same_page(tmp_path: Path) -> None:
    cell = displayed({"text/html": chain_chart([trace()])._repr_html_()})
    assert page(tmp_path, cell) == page(tmp_path, cell)


def test_pieces_of_one_stream_become_one(tmp_path: Path) -> None:
    pieces = [new_output("stream", name="stdout", text=text) for text in ("one ", "line\n")]
    assert "one line" in page(tmp_path, new_code_cell("print()", outputs=pieces))


def test_what_is_no_notebook_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(WorkbookError, match="No notebook at"):
        render(tmp_path / "none.ipynb", tmp_path / "page.html", title="")
    broken = tmp_path / "broken.ipynb"
    broken.write_text("not json")
    with pytest.raises(WorkbookError, match=r"broken\.ipynb is no notebook"):
        render(broken, tmp_path / "page.html", title="")
    assert list(tmp_path.iterdir()) == [broken]


def test_a_failed_write_leaves_the_old_page_and_no_remains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page(tmp_path, new_markdown_cell("old"))
    before = (tmp_path / "out" / "page.html").read_text()

    def full(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        page(tmp_path, new_markdown_cell("new"))
    assert (tmp_path / "out" / "page.html").read_text() == before
    assert len(list((tmp_path / "out").iterdir())) == 1
