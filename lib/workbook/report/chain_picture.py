"""Call chains, drawn: one in lanes by whose code a frame is, or several side by side."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

from matplotlib.figure import Figure as Picture

from workbook.report.sheet import WIDTH, Sheet, drawable, text_width
from workbook.report.style import BAD, INK, LANE_NAMES, LANES, LOOKS, MUTED, RULE, WARN, WHITE, drawing
from workbook.types import Frame, Lane, Status, TraceOutcome

MARGIN = 8.0
PASSED = (Status.OK, Status.ALREADY_FIXED_UPSTREAM)
ACROSS = 5
"""Outcomes side by side before a new row of columns starts."""
TALL, THIN = 22.0, 9.0
"""Points a frame, and a bar, takes in the lanes; in the columns below."""
TALL_COLUMN, THIN_COLUMN = 17.0, 6.0


@dataclass(frozen=True)
class Step:
    """One step of a drawn chain: a frame, or None for a thin bar in place of Dynamo's own frames."""

    lane: Lane
    frame: Frame | None


def steps(outcome: TraceOutcome) -> list[Step]:
    """The frames in call order, with Dynamo's polyfills collapsed; the last frame always stays."""
    found: list[Step] = []
    for index, frame in enumerate(outcome.frames, start=1):
        internal = frame.lane is Lane.TORCH and "_dynamo" in f"{frame.module} {frame.file}"
        if not internal or index == len(outcome.frames):
            found.append(Step(frame.lane, frame))
        elif not found or found[-1].frame:
            found.append(Step(frame.lane, None))
    return found


def is_blamed(frame: Frame, outcome: TraceOutcome) -> bool:
    """Whether the outcome blames this frame."""
    return outcome.blamed == f"{frame.module}:{frame.function}"


def stop(outcome: TraceOutcome) -> str:
    """What the trace ended at."""
    if outcome.status in PASSED:
        return f"returns {', '.join(outcome.output_shapes)}" if outcome.output_shapes else "traced to its end"
    return outcome.operation or LOOKS[outcome.status].word


@drawing()
def lanes(outcome: TraceOutcome) -> Picture:
    """One chain from the top down, each frame in the lane of whose code it is, the stop at the end."""
    chain, top = steps(outcome), 34.0
    length = sum(TALL if step.frame else THIN for step in chain)
    sheet = Sheet(top + length + 46)
    at = _lane_heads(sheet, [lane for lane in LANES if lane is not Lane.OTHER or _has(chain, lane)], 12)
    places, y = [], top
    for step in chain:
        height = TALL if step.frame else THIN
        places.append((at[step.lane], y + height / 2))
        y += height
    end = (places[-1][0] if places else at[Lane.MODEL], y + 16)
    for x in at.values():
        sheet.line([x, x], [22, y], RULE, width=0.8)
    for (x0, y0), (x1, y1) in pairwise([*places, end]):
        middle = (y0 + y1) / 2
        sheet.line([x0, x0, x1, x1], [y0, middle, middle, y1], MUTED)
    for step, (x, y) in zip(chain, places, strict=True):
        if step.frame:
            _lane_frame(sheet, step.frame, x, y, outcome, last=step is chain[-1])
        else:
            sheet.line([x - 4, x + 4], [y, y], LANES[step.lane].colour, width=2.5)
    _lane_end(sheet, outcome, *end)
    return sheet.picture


def _has(chain: Sequence[Step], lane: Lane) -> bool:
    return any(step.lane is lane for step in chain)


def _lane_heads(sheet: Sheet, shown: Sequence[Lane], y: float) -> dict[Lane, float]:
    """Marker and name of each lane in a row; where their markers stand, in points from the left."""
    at, x = {}, MARGIN
    for lane in shown:
        at[lane] = x + 5
        sheet.mark(x + 5, y, LANES[lane])
        x = sheet.text(x + 14, y, LANE_NAMES[lane], 200, colour=LANES[lane].colour, bold=True) + 16
    return at


def _lane_frame(sheet: Sheet, frame: Frame, x: float, y: float, outcome: TraceOutcome, *, last: bool) -> None:
    """Marker, name and place; the blamed and the breaking frame on a tint, with words at the right."""
    broke, blamed = last and outcome.status not in PASSED, is_blamed(frame, outcome)
    tag = " ".join(["◀ blamed"] * blamed + ["✗ breaks here"] * broke)
    right = WIDTH - MARGIN - 12 - text_width(tag, bold=True)
    tone, ground = BAD if broke else WARN, WHITE
    if tag:
        ground = tone.background
        sheet.band(x - 8, y, WIDTH - MARGIN - x + 8, 20, ground)
        sheet.text(right, y, tag, WIDTH, colour=tone.ink, bold=True)
    sheet.mark(x, y, LANES[frame.lane])
    room, place = right - x - 30, f"{frame.file}:{frame.line}"
    name_room = room - min(text_width(drawable(place)), room / 2)
    after = sheet.text(x + 11, y, frame.function, name_room, size=10, bold=True, ground=ground)
    sheet.text(after + 8, y, place, right - after - 16, colour=MUTED, ground=ground)


def _lane_end(sheet: Sheet, outcome: TraceOutcome, x: float, y: float) -> None:
    look = LOOKS[outcome.status]
    ink, room = look.tone.ink, WIDTH - MARGIN - x - 20
    said = (look.word, outcome.break_id, outcome.message.strip().partition("\n")[0])
    sheet.band(x - 8, y + 8, WIDTH - MARGIN - x + 8, 36, look.tone.background)
    sheet.mark(x, y, replace(LANES[Lane.OTHER], colour=ink, marker="o"))
    sheet.text(x + 11, y, f"{look.glyph} {stop(outcome)}", room, size=10, colour=ink, bold=True)
    sheet.text(x + 11, y + 15, " · ".join(filter(None, said)), room, colour=ink)


@dataclass(frozen=True)
class Line:
    """One line of a column: a step, with its name only where it is new or to blame."""

    step: Step
    name: str
    blamed: bool


@dataclass(frozen=True)
class Column:
    """One outcome, ready to draw."""

    head: str
    level: str
    lines: tuple[Line, ...]
    outcome: TraceOutcome

    @property
    def end(self) -> list[str]:
        """The lines of the ending, the first of them bold."""
        look = LOOKS[self.outcome.status]
        said = self.outcome.output_shapes or (stop(self.outcome), self.outcome.break_id or "")
        return [f"{look.glyph} {look.word}", *filter(None, said)]

    @property
    def length(self) -> float:
        """Points from the first frame to the last."""
        return sum(TALL_COLUMN if line.step.frame else THIN_COLUMN for line in self.lines)

    @property
    def need(self) -> float:
        """Points that the column wants to be wide."""
        named = [
            text_width(drawable(line.name), bold=line.blamed) + 18 + 14 * line.blamed
            for line in self.lines
            if line.name
        ]
        ending = [text_width(drawable(text), bold=index == 0) + 12 for index, text in enumerate(self.end)]
        return (
            max(text_width(self.head, size=10, bold=True), text_width(drawable(self.level)), *named, *ending)
            + 2
        )


@drawing()
def columns(outcomes: Sequence[TraceOutcome], names: dict[int, str]) -> Picture:
    """One column per outcome, frames from the top down, rows aligned as long as the chains agree."""
    across = ceil(len(outcomes) / ceil(len(outcomes) / ACROSS))
    rows = [_row(outcomes[start : start + across], names) for start in range(0, len(outcomes), across)]
    head, gap = 40.0, 14.0
    heights = [head + max(column.length + 15 * len(column.end) for column in row) + 26 for row in rows]
    sheet, top = Sheet(24 + sum(heights)), 24.0
    chains = [steps(outcome) for outcome in outcomes]
    _lane_heads(sheet, [lane for lane in LANES if any(_has(chain, lane) for chain in chains)], 10)
    for row, height in zip(rows, heights, strict=True):
        x = MARGIN
        widths = share([column.need for column in row], WIDTH - 2 * MARGIN - gap * (len(row) - 1))
        for column, width in zip(row, widths, strict=True):
            _column(sheet, column, x, top, width)
            x += width + gap
        top += height
    return sheet.picture


def share(needs: Sequence[float], room: float) -> list[float]:
    """Widths that fill the room: as needed and what is over shared out, or the widest cut to one width."""
    over = room - sum(needs)
    if over >= 0:
        return [need + over / len(needs) for need in needs]
    left, widths = room, dict.fromkeys(range(len(needs)), 0.0)
    for done, index in enumerate(sorted(widths, key=lambda i: needs[i])):
        widths[index] = min(needs[index], left / (len(needs) - done))
        left -= widths[index]
    return list(widths.values())


def _row(outcomes: Sequence[TraceOutcome], names: dict[int, str]) -> list[Column]:
    row: list[Column] = []
    for outcome in outcomes:
        before = [line.step for line in row[-1].lines] if row else []
        lines, shared = [], True
        for index, step in enumerate(steps(outcome)):
            shared = shared and index < len(before) and _same(step, before[index])
            blamed = step.frame is not None and is_blamed(step.frame, outcome)
            named = step.frame is not None and (blamed or not shared)
            lines.append(Line(step, step.frame.function if step.frame and named else "", blamed))
        head = f"level {outcome.patch_level} · {outcome.process_state.value}"
        row.append(Column(head, names.get(outcome.patch_level, ""), tuple(lines), outcome))
    return row


def _same(step: Step, other: Step) -> bool:
    if step.frame is None or other.frame is None:
        return step == other
    return (step.frame.file, step.frame.function) == (other.frame.file, other.frame.function)


def _column(sheet: Sheet, column: Column, x: float, top: float, width: float) -> None:
    sheet.line([x, x + width], [top + 4, top + 4], RULE)
    sheet.text(x, top + 14, column.head, width, size=10, bold=True)
    sheet.text(x, top + 28, column.level, width, colour=MUTED)
    y = top + 40
    if column.lines:
        sheet.line([x + 5, x + 5], [y + 8, y + column.length + 4], MUTED)
    for line in column.lines:
        if line.step.frame is None:
            sheet.line([x + 1, x + 9], [y + 3, y + 3], LANES[line.step.lane].colour, width=2.5)
            y += THIN_COLUMN
            continue
        if line.blamed:
            sheet.band(x - 2, y + 8, width + 4, 16, WARN.background)
            sheet.text(x + width - 11, y + 8, "◀", 14, colour=WARN.ink)
        sheet.mark(x + 5, y + 8, LANES[line.step.lane], size=7)
        ink = WARN.ink if line.blamed else INK
        sheet.text(x + 14, y + 8, line.name, width - 16 - 14 * line.blamed, colour=ink, bold=line.blamed)
        y += TALL_COLUMN
    tone, height = LOOKS[column.outcome.status].tone, 15.0 * len(column.end) + 4
    sheet.band(x - 2, y + 3 + height / 2, width + 4, height, tone.background)
    for index, text in enumerate(column.end):
        sheet.text(x + 4, y + 13 + 15 * index, text, width - 8, colour=tone.ink, bold=index == 0)
