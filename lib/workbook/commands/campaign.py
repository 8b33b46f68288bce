"""`workbook run` and `workbook report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbook.commands.console import NodeOption, err, name_value, out
from workbook.errors import UsageError
from workbook.paths import require_checkout

if TYPE_CHECKING:
    from workbook.campaign import Finished


def run(
    node: NodeOption = "",
    only: Annotated[str, typer.Option(help="Notebooks by number, such as 00,01.")] = "",
    campaign: Annotated[str, typer.Option(help="The folder's name; the time by default.")] = "",
    resume: Annotated[str, typer.Option(metavar="CAMPAIGN", help="Go on where this campaign stopped.")] = "",
    parameter: Annotated[
        list[str] | None, typer.Option("-p", metavar="NAME=VALUE", help="A notebook parameter.")
    ] = None,
) -> None:
    """The notebooks in order, then the report."""
    from workbook import (
        campaign as campaigns,
    )  # papermill and pandas take seconds that `trace` need not wait for

    require_checkout()
    if resume and (node or only or campaign or parameter):
        raise UsageError(
            "--resume goes on with what the campaign was asked for;",
            "leave out --node, --only, --campaign and -p.",
        )
    if resume:
        wanted, given = campaigns.kept_request(resume)
    else:
        wanted = [part.strip() for part in only.split(",")] if only else []
        given = {"node": node or "local"} | dict(name_value(one) for one in parameter or [])
    if "campaign" in given:
        raise UsageError("-p campaign is not taken;", "give --campaign NAME.")
    name = resume or campaign or campaigns.new_name()
    models = campaigns.choose(wanted)
    parameters = campaigns.plan(models, given | {"campaign": name})
    campaigns.keep_request(name, wanted, given)
    out.print(f"Campaign {name}: {', '.join(model.notebook for model in models)} on node {given['node']}.")
    try:
        page = campaigns.run(name, parameters, resume=bool(resume), on_done=_tell)
    except KeyboardInterrupt:
        err.print(
            f"workbook: interrupted; what was started is being stopped. To go on: workbook run --resume {name}"
        )
        raise typer.Exit(130) from None
    _say_verdict(name, page)


def report(
    campaign: Annotated[str, typer.Argument(help="The newest by default.")] = "",
    parameter: Annotated[
        list[str] | None, typer.Option("-p", metavar="NAME=VALUE", help="A parameter of 04_report.")
    ] = None,
) -> None:
    """Gather a campaign's records and render its report anew."""
    from workbook import campaign as campaigns
    from workbook import store
    from workbook.params import ReportParams

    require_checkout()
    known = store.campaigns()
    name = campaign or (known[-1] if known else "")
    if name not in known:
        raise UsageError(
            f"No campaign {name!r};" if name else "No campaign yet;", f"known: {campaigns.known_names()}."
        )
    given = dict(name_value(one) for one in parameter or []) | {"campaign": name}
    page = campaigns.run(name, campaigns.plan([ReportParams], given), on_done=_tell)
    _say_verdict(name, page)


def _tell(finished: "Finished") -> None:
    took = "done before" if finished.reused else f"{finished.seconds:.0f} s"
    out.print(f"{finished.run.record.notebook}  {finished.run.record.status}  {took}")


def _say_verdict(name: str, page: Path) -> None:
    from workbook import store

    report_run = store.find(name, "04_report")[-1]
    out.print(f"\nVerdict:\n{report_run.record.verdict}\n\nOpen {page}")
