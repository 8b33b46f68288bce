"""Tables say what the records say, link only what is local, and let nothing through."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.report_samples import HOSTILE, LEVELS, passed, trace
from tests.unit.test_report_text import Seen
from workbook.errors import WorkbookError
from workbook.report import boundary
from workbook.report.tables import (
    Cell,
    Table,
    diff_block,
    environment_table,
    frame_table,
    key_value_table,
    outcome_matrix,
    outcome_table,
    show,
)
from workbook.types import EnvSnapshot, Gpu, PatchDiff, Stage, StageOutcome, Status

ALLOWED = {"div", "table", "caption", "span", "thead", "tbody", "tr", "th", "td", "a", "code", "wbr", "small"}


@given(st.text(max_size=40) | st.just(HOSTILE))
def test_no_text_becomes_markup(text: str) -> None:
    cell = Cell(text, glyph=text, hint=text, link=text, code=True)
    seen = Seen(Table((text, text), ((text, cell),), caption=text)._repr_html_())
    assert {tag for tag, _ in seen.tags} <= ALLOWED
    names = {name for _, attributes in seen.tags for name in attributes}
    assert names <= {"class", "scope", "title", "href", "aria-hidden"}


@pytest.mark.parametrize("link", ["#cell-3", "raw/server.log#L12", "../01/index.html", "a%20b.html"])
def test_local_evidence_is_linked(link: str) -> None:
    seen = Seen(Table(("a",), ((Cell("word", link=link),),))._repr_html_())
    assert ("a", {"href": link}) in seen.tags


@pytest.mark.parametrize(
    "link",
    [
        "javascript:alert(1)",
        "java\nscript:alert(1)",
        " javascript:alert(1)",
        "http://example.org/",
        "//example.org/",
        "/etc/passwd",
        "data:text/html,x",
        "raw/server.log:12",
        "\\\\host\\share",
    ],
)
def test_any_other_evidence_is_shown_and_not_linked(link: str) -> None:
    seen = Seen(Table(("a",), ((Cell("word", link=link),),))._repr_html_())
    assert "a" not in {tag for tag, _ in seen.tags}
    assert " ".join(link.split()) in seen.text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (pd.NA, "–"),
        (True, "yes"),
        (12345, "12,345"),
        (0.8, "0.8"),
        (9876.5, "9,876"),
    ],
)
def test_values_as_a_reader_wants_them(value: object, shown: str) -> None:
    assert show(value) == shown


def test_a_missing_number_is_a_dash_in_a_column_of_numbers() -> None:
    markup = frame_table(pd.DataFrame({"label": ["a", "b"], "n": [1.5, None]}))._repr_html_()
    assert '<td class="wb-number">1.5</td>' in markup
    assert '<td class="wb-number">–</td>' in markup
    assert '<th scope="col" class="wb-number">n</th>' in markup


def test_outcomes_one_row_each() -> None:
    table = outcome_table([trace(0), passed(4)], LEVELS)
    text = Seen(table._repr_html_()).text
    assert len(table.rows) == 2
    for said in (
        "unpatched",
        "✗",
        "not traceable",
        "_thread.allocate_lock",
        "subprocess.py:828",
        "gb0007",
        "0.8",
    ):
        assert said in text
    assert "custom-op" in text
    assert "✓" in text


def test_an_outcome_of_an_unnamed_level_without_frames() -> None:
    text = Seen(outcome_table([trace(7, 0)])._repr_html_()).text
    assert "7" in text
    assert "–" in text


def cell(label: str, stage: Stage, status: Status, **more: str) -> StageOutcome:
    return StageOutcome(label=label, stage=stage, status=status, **more)


def test_the_matrix_has_stages_in_order_and_marks_what_did_not_run() -> None:
    table = outcome_matrix(
        [
            cell("level 4", Stage.TRACE, Status.OK),
            cell("level 0", Stage.TRACE, Status.GRAPH_BREAK, detail="why", evidence="#log"),
            cell("level 0", Stage.IMPORT, Status.OK),
        ]
    )
    assert table.columns[1:] == tuple(stage.value for stage in Stage)
    assert [row[0] for row in table.rows] == ["level 4", "level 0"]
    words = [getattr(value, "text", value) for value in table.rows[1]]
    assert words == ["level 0", "ok", "not run", "graph break", *["not run"] * 5]
    seen = Seen(table._repr_html_())
    assert ("a", {"href": "#log"}) in seen.tags
    assert any(attributes.get("title") == "why" for _, attributes in seen.tags)


def test_two_outcomes_for_one_cell_are_refused() -> None:
    twice = [cell("level 0", Stage.TRACE, Status.OK), cell("level 0", Stage.TRACE, Status.CRASHED)]
    with pytest.raises(WorkbookError, match="stage trace of 'level 0'"):
        outcome_matrix(twice)


def environment(**changes: object) -> EnvSnapshot:
    fields: dict[str, object] = {
        "node": "lab",
        "hostname": "host",
        "cpu": "some CPU",
        "cores": 4,
        "memory_gb": 16.0,
        "os": "Linux",
        "python": "3.11.7",
        "gpus": (),
        "driver": None,
        "cuda": None,
        "packages": {"torch": "2.9.1", "pandas": "3.0"},
        "git_commit": None,
        "git_dirty": None,
        "argv": ("workbook", "run"),
    }
    return EnvSnapshot.model_validate(fields | changes)


def test_the_environment() -> None:
    gpu = Gpu(index=0, name="a GPU", compute_capability="12.0", memory_gb=96)
    env = environment(gpus=(gpu,), git_commit="a" * 40, git_dirty=True, patched_sources={"m:f": "b" * 64})
    text = Seen(environment_table(env)._repr_html_()).text
    for said in (
        "a GPU, SM 12.0, 96 GB",
        "torch",
        "pandas",
        "aaaaaaaaaaaa and uncommitted changes",
        "m:f bbbbbbbbbbbb",
    ):
        assert said in text
    bare = Seen(environment_table(environment(), packages=["torch", "sglang"])._repr_html_()).text
    assert "pandas" not in bare
    assert "not installed" in bare
    assert "CPU only" in bare


def test_a_level_that_repeats_another_has_a_row_that_says_so() -> None:
    text = Seen(boundary.outcomes([trace(0), passed(4)])._repr_html_()).text
    assert "nsa-indexer" in text and "as level 4: what it patches besides is SGLang" in text
    assert "as level 4" not in Seen(boundary.outcomes([trace(0)])._repr_html_()).text
    assert "as level 4" not in Seen(boundary.outcomes([passed(4), passed(5)])._repr_html_()).text


def test_a_table_without_headings_has_no_head() -> None:
    assert "<thead>" not in key_value_table({"a": 1})._repr_html_()


DIFF = """--- a.py
+++ a.py
@@ -1,3 +1,2 @@
 def f():
-    x = "<b>"
---- x
+    return 1
"""


def test_a_diff_counts_its_lines_and_escapes_them() -> None:
    block = diff_block(PatchDiff(patch="p", target="m:f", source_sha256="0" * 64, diff=DIFF))
    seen = Seen(block._repr_html_())
    tags = [tag for tag, _ in seen.tags]
    assert (tags.count("ins"), tags.count("del")) == (1, 2)
    assert "(+1 −2)" in seen.text
    assert '    x = "<b>"' in seen.text
    assert ("details", {"class": "wb-diff", "open": None}) in seen.tags
    assert "b" not in tags
