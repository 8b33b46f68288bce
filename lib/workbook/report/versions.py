"""Tables over versions: where the crash moves to, what each entry point needs, and what a GPU said of level 4."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from packaging.version import Version

from workbook.report.style import LOOKS
from workbook.report.tables import Cell, Table, status_cell
from workbook.types import MatrixCell, ProcessState, Provenance, Status, ValueOutcome


def where_it_stops(
    cells: Sequence[MatrixCell], provenance: Provenance, entry: str, state: ProcessState = ProcessState.WARM
) -> Table:
    """One entry point: a row for each level and each run of versions that end alike, of FlashInfer, then of torch.

    Args:
        state: whose cells are shown; a server is warm when it captures.
    """
    chosen = [one for one in cells if one.entry == entry and one.process_state is state]
    torches = _sorted({one.torch for one in chosen})
    found = {(one.patch_level, one.flashinfer, one.torch): one for one in chosen}
    rows: list[tuple[object, ...]] = []
    for level in sorted({one.patch_level for one in chosen}):
        versions = _sorted({one.flashinfer for one in chosen if one.patch_level == level})

        def endings(version: str, level: int = level) -> tuple[tuple[str, ...], ...]:
            return tuple(_ending(found.get((level, version, torch))) for torch in torches)

        for _, alike in groupby(versions, endings):
            run = list(alike)

            def ending(torch: str, level: int = level, first: str = run[0]) -> tuple[str, ...]:
                return _ending(found.get((level, first, torch)))

            for _, same in groupby(torches, ending):
                of_torch = list(same)
                one = found.get((level, run[0], of_torch[0]))
                rows.append(
                    (
                        str(level),
                        _span(run),
                        _span([each.partition("+")[0] for each in of_torch]),
                        *_stop(one),
                    )
                )
    columns = ("level", "FlashInfer", "torch", "status", "stops at", "in")
    return Table(columns, tuple(rows), f"{entry}, {state} process. {provenance.sentence}")


def by_entry(cells: Sequence[MatrixCell], provenance: Provenance) -> Table:
    """Every entry point: what stops it unpatched over all versions, and in how many cells level 4 passes."""
    rows = []
    for entry in dict.fromkeys(one.entry for one in cells):
        mine = [one for one in cells if one.entry == entry]
        stops = dict.fromkeys(
            one.operation or "no answer without a GPU" for one in mine if one.patch_level == 0
        )
        opaque = [one for one in mine if one.patch_level == 4]
        passed = sum(one.status is Status.OK for one in opaque)
        status = Status.OK if opaque and passed == len(opaque) else Status.DYNAMO_UNSUPPORTED
        rows.append(
            (
                Cell(_short(entry), code=True),
                Cell(", ".join(stops), code=True),
                Cell(f"{passed} of {len(opaque)}", glyph=LOOKS[status].glyph, tone=LOOKS[status].tone),
            )
        )
    columns = ("entry point", "level 0 stops at", "level 4 passes")
    return Table(columns, tuple(rows), f"All versions, cold and warm. {provenance.sentence}")


def on_a_gpu(found: Sequence[ValueOutcome], provenance: Provenance) -> Table:
    """Level 4 against the bare call on a real GPU."""
    rows = tuple(
        (
            Cell(_short(one.entry), code=True),
            status_cell(one.status, hint=one.message),
            _unwritten(one),
            _equality(one),
            one.bare_us_p50,
            _cost(one),
        )
        for one in found
    )
    columns = ("entry point", "status", "unwritten", "bit for bit", "bare, µs", "operator, µs more")
    return Table(columns, rows, f"Level 4 on poisoned outputs. {provenance.sentence}")


def _ending(cell: MatrixCell | None) -> tuple[str, ...]:
    """What tells two cells apart: the function, not its line, which moves with every version."""
    if cell is None:
        return ("",)
    return (cell.status, cell.operation or "", _function(cell))


def _function(cell: MatrixCell) -> str:
    parts = (cell.blamed or "").split(":")
    return parts[1] if len(parts) > 1 else ""


def _span(versions: list[str]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"


def _stop(cell: MatrixCell | None) -> tuple[Cell, Cell, Cell]:
    if cell is None:
        return Cell("–"), Cell("–"), Cell("–")
    return (
        status_cell(cell.status, hint=cell.message),
        Cell(cell.operation or "–", code=bool(cell.operation)),
        Cell(_function(cell) or "–", code=bool(_function(cell)), hint=cell.blamed or ""),
    )


def _short(entry: str) -> str:
    return entry.removeprefix("flashinfer.")


def _equality(one: ValueOutcome) -> str:
    """Nothing to compare where nothing was written: two poisons are equal too."""
    if one.equal is None or 1.0 in one.unwritten:
        return "–"
    return "equal" if one.equal else "differ"


def _unwritten(one: ValueOutcome) -> str:
    return ", ".join(f"{share:.0%}" for share in one.unwritten) or "–"


def _cost(one: ValueOutcome) -> Cell:
    if one.overhead_us_p50 is None:
        return Cell("–", number=True)
    spread = f"{one.overhead_us_p10:.1f} to {one.overhead_us_p90:.1f}"
    return Cell(f"{one.overhead_us_p50:.1f} ({spread})", hint=f"{one.calls:,} calls of each", number=True)


def _sorted(versions: Iterable[str]) -> list[str]:
    return sorted(versions, key=Version)
