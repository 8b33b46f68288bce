"""What notebook 03 shows: how far a small module gets, and the pieces it is cut into."""

from workbook.report.boundary import chain, declared_table
from workbook.report.group import Displayed, Markup
from workbook.report.tables import Table, key_value_table, status_cell
from workbook.types import SplitOutcome, Stage


def stages(found: SplitOutcome) -> Table:
    """Each stage that was reached, and why one did not end well."""
    rows = tuple(
        (stage.value, status_cell(found.stages[stage]), found.reasons.get(stage, ""))
        for stage in Stage
        if stage in found.stages
    )
    return Table(("stage", "status", "reason"), rows, f"How far patch level {found.patch_level} gets")


def pieces(found: SplitOutcome) -> Displayed:
    """The pieces in order; where there are none, the call chain that stopped the trace."""
    if found.stopped is not None:
        return chain([found.stopped])
    if not found.pieces:
        return Markup("<p>There are none: nothing was compiled.</p>")
    rows = tuple(
        (
            piece.name,
            "split off, run eagerly" if piece.split else "compiled, to be captured",
            ", ".join(piece.operations),
        )
        for piece in found.pieces
    )
    sizes = ", ".join(map(str, found.capture_sizes))
    caption = f"{len(rows)} pieces; {found.num_graphs} graph from Dynamo for {sizes} tokens"
    return Table(("piece", "what becomes of it", "operations"), rows, caption)


def declared(found: SplitOutcome) -> Table:
    """What was declared, stood in for and installed."""
    return declared_table(found.declared, found.versions, found.stand_ins)


def summary(found: SplitOutcome) -> Table:
    """The pieces in a line."""
    cut = sum(piece.split for piece in found.pieces)
    rows = {
        "layers": found.num_layers,
        "pieces": f"{len(found.pieces)} ({len(found.pieces) - cut} compiled, {cut} split off)",
        "split at": ", ".join(found.split_ops),
        "graphs from Dynamo": found.num_graphs,
        "capture sizes (tokens)": ", ".join(map(str, found.capture_sizes)),
    }
    return key_value_table(
        rows, f"SGLang {found.versions.get('sglang', 'none')} at patch level {found.patch_level}"
    )
