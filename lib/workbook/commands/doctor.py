"""`workbook doctor`: whether a node has what a run needs, and what to do where it has not."""

import json
from collections import Counter
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from workbook import catalog
from workbook.commands.console import JsonOption, NodeOption, out
from workbook.doctor.examine import examine
from workbook.node.connect import connect
from workbook.types import DoctorCheck, LaunchProfile, Stack

STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red", "not applicable": "dim"}


def doctor(
    node: NodeOption = "local",
    stack: Annotated[
        str, typer.Option("--stack", help="A stack of data/stacks; the node's own by default.")
    ] = "",
    profile: Annotated[
        str, typer.Option("--profile", help="Also check for the server of this profile of data/profiles.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """All that a run needs of a node, and what to do for each check that fails.

    Exit status 0 says that the node was checked, whatever came of it; a script reads the verdicts:
    workbook doctor --json | jq -e 'all(.verdict != "failed")'
    """
    server = catalog.load(LaunchProfile, profile) if profile else None
    connection = connect(node)
    found = examine(connection, catalog.load(Stack, stack or connection.node.stack), server)
    if as_json:
        print(json.dumps([check.model_dump(mode="json") for check in found], indent=2))
        return
    out.print(table(found), soft_wrap=False)
    to_do = [check for check in found if check.remedy]
    for check in to_do:
        out.print(f"\n{check.name}: {check.remedy}")
    counts = Counter[str](check.verdict for check in found)
    out.print(
        f"\nNode {node}: "
        + ", ".join(f"{counts[verdict]} {verdict}" for verdict in STYLES if counts[verdict])
    )


def table(checks: tuple[DoctorCheck, ...]) -> Table:
    """A row a check: what was found, and what is needed."""
    rows = Table(box=None, pad_edge=False, header_style="bold")
    rows.add_column("verdict", no_wrap=True)
    rows.add_column("check")
    rows.add_column("found", overflow="fold", ratio=3)
    rows.add_column("needed", overflow="fold", ratio=2)
    for check in checks:
        rows.add_row(Text(check.verdict, STYLES[check.verdict]), check.name, check.found, check.needed)
    return rows
