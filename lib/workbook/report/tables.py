"""Tables of the report, and what fills them."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from workbook.errors import WorkbookError
from workbook.report.style import BAD, GOOD, LOOKS, QUIET, Tone
from workbook.report.text import elide, escape, one_line, plain
from workbook.types import EnvSnapshot, PatchDiff, PatchLevel, Stage, StageOutcome, Status, TraceOutcome

# A path from this page, or a place on it: no scheme, no host, nothing from the root.
LOCAL_LINK = re.compile(r"(?=.)(?![/])[\w.\-+%~@=/]*(#[\w.\-+%~@=:/]*)?")
HINT_LIMIT = 600
MISSING = "–"


@dataclass(frozen=True)
class Cell:
    """One cell that is more than a value.

    Args:
        text: what stands in it.
        glyph: a sign before the text, so that a tint never speaks alone.
        tone: its tint.
        hint: shown when the pointer rests on it.
        link: where its evidence is: a relative path or a #place; anything else is shown, not linked.
        code: set as code.
        number: set flush right, as its whole column then is.
    """

    text: str
    glyph: str = ""
    tone: Tone | None = None
    hint: str = ""
    link: str = ""
    code: bool = False
    number: bool = False


@dataclass(frozen=True)
class Table:
    """A table that a notebook cell displays. The first column names the row.

    Args:
        columns: the column headings.
        rows: cells, or plain values, one per column.
        caption: what the table shows.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    caption: str = ""

    def __repr__(self) -> str:
        return f"<Table: {self.caption or ', '.join(self.columns)} ({len(self.rows)} rows)>"

    def _repr_html_(self) -> str:
        caption = f"<caption><span>{escape(self.caption)}</span></caption>" if self.caption else ""
        numeric = [any(map(_is_number, column)) for column in zip(*self.rows, strict=True)]
        numeric = numeric or [False] * len(self.columns)
        head = "".join(
            f'<th scope="col"{_NUMBER if number else ""}>{escape(column)}</th>'
            for column, number in zip(self.columns, numeric, strict=True)
        )
        head = f"<thead><tr>{head}</tr></thead>" if any(self.columns) else ""
        body = "".join(
            "<tr>"
            + "".join(
                _cell(value, header=index == 0, number=number)
                for index, (value, number) in enumerate(zip(row, numeric, strict=True))
            )
            + "</tr>"
            for row in self.rows
        )
        table = f'<table class="wb-table">{caption}{head}<tbody>{body}</tbody></table>'
        return f'<div class="wb-scroll">{table}</div>'


_NUMBER = ' class="wb-number"'


def _is_number(value: object) -> bool:
    if isinstance(value, Cell):
        return value.number
    return isinstance(value, int | float) and not isinstance(value, bool) and not _is_missing(value)


def _is_missing(value: object) -> bool:
    return (
        value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value))
    )


def show(value: object) -> str:
    """A value as a reader wants it: digits grouped, missing as a dash."""
    if _is_missing(value):
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def _cell(value: object, *, header: bool, number: bool) -> str:
    cell = value if isinstance(value, Cell) else Cell(show(value))
    content = escape(cell.text)
    if cell.code and cell.text != MISSING:
        # A name may break after a dot, a slash or a colon, rather than anywhere.
        content = "<code>" + re.sub(r"([./:])", r"\1<wbr>", content) + "</code>"
    if cell.glyph:
        content = f'<span aria-hidden="true">{escape(cell.glyph)}</span>&nbsp;{content}'
    if LOCAL_LINK.fullmatch(cell.link):
        content = f'<a href="{escape(cell.link)}">{content}</a>'
    elif cell.link:
        content += f"<small>{escape(one_line(cell.link, 60))}</small>"
    attributes = (' scope="row"' if header else "") + (_NUMBER if number else "")
    if cell.tone:
        attributes += f' style="{cell.tone.css}"'
    if cell.hint:
        attributes += f' title="{escape(elide(plain(cell.hint), HINT_LIMIT))}"'
    tag = "th" if header else "td"
    return f"<{tag}{attributes}>{content}</{tag}>"


def _code(text: str | None) -> Cell:
    return Cell(text or MISSING, code=True)


def status_cell(status: Status, *, hint: str = "", link: str = "") -> Cell:
    """A status as glyph, word and tint."""
    look = LOOKS[status]
    return Cell(look.word, glyph=look.glyph, tone=look.tone, hint=hint, link=link)


def frame_table(frame: pd.DataFrame, caption: str = "") -> Table:
    """A data frame as a table, without its index."""
    rows = tuple(tuple(row) for row in frame.astype(object).itertuples(index=False, name=None))
    return Table(tuple(str(column) for column in frame.columns), rows, caption)


def key_value_table(values: Mapping[str, object], caption: str = "") -> Table:
    """Names and their values, one a row, in the order given."""
    return Table(("", ""), tuple(values.items()), caption)


def outcome_table(outcomes: Sequence[TraceOutcome], levels: Sequence[PatchLevel] = ()) -> Table:
    """What Dynamo made of each call: one row per outcome, in the order given.

    Args:
        outcomes: what was traced.
        levels: the patch table, for the names of the levels.
    """
    names = {level.level: level.name for level in levels}
    rows = []
    for outcome in outcomes:
        last = outcome.frames[-1] if outcome.frames else None
        rows.append(
            (
                str(outcome.patch_level),
                names.get(outcome.patch_level, MISSING),
                outcome.process_state.value,
                status_cell(outcome.status, hint=outcome.message),
                _code(outcome.operation),
                _code(outcome.blamed),
                _code(f"{last.file}:{last.line}" if last else None),
                outcome.break_id,
                outcome.seconds,
            )
        )
    columns = (
        "level",
        "name",
        "process",
        "status",
        "operation",
        "blamed",
        "stopped at",
        "break id",
        "seconds",
    )
    return Table(columns, tuple(rows), "What Dynamo makes of the call, with fullgraph=True")


def outcome_matrix(cells: Iterable[StageOutcome], caption: str = "How far each level gets") -> Table:
    """Rows by label, in order of first appearance; columns by stage. What did not run is a marked gap.

    Args:
        cells: at most one per label and stage; `evidence` becomes the link, `detail` the hint.
        caption: what the rows have in common.

    Raises:
        WorkbookError: two cells claim one place.
    """
    found: dict[str, dict[Stage, StageOutcome]] = {}
    for cell in cells:
        row = found.setdefault(cell.label, {})
        if cell.stage in row:
            raise WorkbookError(
                f"Two outcomes for stage {cell.stage.value} of {cell.label!r}.",
                "Give each run a label of its own.",
            )
        row[cell.stage] = cell
    gap = Cell("not run", glyph="·", tone=QUIET)
    rows = tuple(
        (label, *(_stage(row[stage]) if stage in row else gap for stage in Stage))
        for label, row in found.items()
    )
    return Table(("", *(stage.value for stage in Stage)), rows, caption)


def _stage(cell: StageOutcome) -> Cell:
    return status_cell(cell.status, hint=cell.detail, link=cell.evidence)


def environment_table(env: EnvSnapshot, packages: Sequence[str] = ()) -> Table:
    """Where a run took place.

    Args:
        env: the snapshot.
        packages: the packages to name; empty for all of them.
    """
    dirty = " and uncommitted changes" if env.git_dirty else ""
    versions = {name: env.packages.get(name, "not installed") for name in packages or sorted(env.packages)}
    rows: list[tuple[str, object]] = [
        ("node", f"{env.node} ({env.hostname})"),
        ("hardware", env.hardware),
        ("processor", f"{env.cpu}, {env.cores} cores, {env.memory_gb:.0f} GB"),
        *((f"GPU {g.index}", f"{g.name}, SM {g.compute_capability}, {g.memory_gb:.0f} GB") for g in env.gpus),
        ("driver", env.driver),
        ("CUDA", env.cuda),
        ("system", f"{env.os}, Python {env.python}"),
        ("git commit", f"{env.git_commit[:12]}{dirty}" if env.git_commit else None),
        ("command", _code(" ".join(env.argv))),
        *versions.items(),
        *(("patched source", _code(f"{name} {digest[:12]}")) for name, digest in env.patched_sources.items()),
    ]
    return Table(("", ""), tuple(rows), "Where it ran")


@dataclass(frozen=True)
class DiffBlock:
    """A unified diff that a notebook cell displays.

    Args:
        diff: what one patch does to one function.
        expanded: whether it is open at first.
    """

    diff: PatchDiff
    expanded: bool = True

    def __repr__(self) -> str:
        return self.diff.diff

    def _repr_html_(self) -> str:
        lines = list(_diff_lines(self.diff.diff))
        kinds = [kind for kind, _ in lines]
        body = "".join(_DIFF_MARKUP[kind].format(escape(line) or " ") for kind, line in lines)
        return (
            f'<details class="wb-diff"{" open" if self.expanded else ""}><summary>{escape(self.diff.patch)}: '
            f"<code>{escape(self.diff.target)}</code> (+{kinds.count('+')} −{kinds.count('-')})</summary>"
            f'<div class="wb-scroll"><pre>{body}</pre></div></details>'
        )


_LINE = "display:block;text-decoration:none;"
_DIFF_MARKUP = {
    "+": f'<ins style="{_LINE}{GOOD.css}">{{}}</ins>',
    "-": f'<del style="{_LINE}{BAD.css}">{{}}</del>',
    "@": f'<span style="{_LINE}{QUIET.css}">{{}}</span>',
    " ": f'<span style="{_LINE}">{{}}</span>',
}


def _diff_lines(diff: str) -> Iterator[tuple[str, str]]:
    """Each line with its kind. Before the first hunk there is only the head, whose +++ adds nothing."""
    in_hunk = False
    for line in diff.rstrip("\n").split("\n"):
        in_hunk = in_hunk or line.startswith("@@")
        kind = line[:1] if in_hunk else "@"
        yield (kind if kind in _DIFF_MARKUP else " "), line


def diff_block(diff: PatchDiff, *, expanded: bool = True) -> DiffBlock:
    """What a patch does, as a coloured diff."""
    return DiffBlock(diff, expanded)
