"""The notebooks in order, with papermill, then the report."""

import ast
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import papermill
from nbclient.exceptions import DeadKernelError
from papermill.exceptions import PapermillExecutionError

from workbook import catalog, store
from workbook.errors import UsageError, WorkbookError, nearest
from workbook.node.connect import connect
from workbook.node.probe import stack_python
from workbook.params import (
    BaselineParams,
    CrashParams,
    Params,
    PatchesParams,
    PiecewiseParams,
    ReportParams,
    assignments,
    is_parameters,
)
from workbook.paths import NOTEBOOKS, reports_dir, require_checkout, runs_dir
from workbook.report.html import render
from workbook.types import Stack

ORDER: tuple[type[Params], ...] = (BaselineParams, CrashParams, PatchesParams, PiecewiseParams, ReportParams)
REPORT = ReportParams.notebook
REQUEST = "request.json"
PAGE = "notebook.html"
# A kernel named python3 that the user has elsewhere must not take the place of this environment's.
os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")
TITLES = {
    "00_baseline": "Baseline",
    "01_dynamo_crash": "The crash",
    "02_flashinfer_patches": "The patches",
    "03_piecewise": "Piecewise capture",
    REPORT: "Piecewise CUDA graphs at the FlashInfer border",
}


@dataclass(frozen=True)
class Finished:
    """A notebook of the campaign that ended well: its run, and the seconds it took (0 where it had run before)."""

    run: store.SealedRun
    seconds: float
    reused: bool = False


def new_name() -> str:
    """A campaign's name from the clock, UTC."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


def known_names() -> str:
    """The campaigns that there are, for a sentence."""
    return ", ".join(store.campaigns()) or "none yet"


def choose(only: Sequence[str]) -> list[type[Params]]:
    """The notebooks that `only` names, by number or by name; all when it is empty. The report always comes last.

    Raises:
        UsageError: there is no such notebook.
    """
    known = [model.notebook for model in ORDER]
    wanted = set()
    for name in only:
        found = [one for one in known if name in (one, one.partition("_")[0])]
        if not found:
            raise UsageError(
                f"No notebook {name!r};", nearest(name, known, f"known: {', '.join(known)}.", 0.3)
            )
        wanted |= set(found)
    return [model for model in ORDER if not only or model.notebook in wanted or model is ReportParams]


def defaults(model: type[Params]) -> dict[str, Any]:
    """The values in a notebook's own parameters cells, of which papermill sees the tagged one only."""
    notebook = json.loads((NOTEBOOKS / f"{model.notebook}.ipynb").read_text(encoding="utf-8"))
    sources = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return {
        name: ast.literal_eval(value)
        for source in filter(is_parameters, sources)
        for name, value in assignments(source)
    }


def plan(models: Sequence[type[Params]], given: Mapping[str, Any]) -> dict[type[Params], dict[str, Any]]:
    """The parameters of every notebook, all checked before the first one starts.

    Args:
        given: values that replace the notebooks' own; each goes to every notebook that has such a parameter.

    Raises:
        UsageError: no notebook has such a parameter, a value will not do, or the stack is not set up.
    """
    known = {name for model in models for name in model.model_fields}
    for name in given:
        if name not in known:
            hint = nearest(name, known, f"there are {', '.join(sorted(known))}.")
            raise UsageError(f"{name} is not a parameter of any notebook here;", hint)
    chosen = {
        model: {name: value for name, value in given.items() if name in model.model_fields}
        for model in models
    }
    for model, values in chosen.items():
        params = model.check(defaults(model) | values)
        if stack := getattr(params, "stack", None):
            stack_python(connect(params.node), catalog.load(Stack, stack))
    return chosen


def keep_request(campaign: str, only: Sequence[str], given: Mapping[str, Any]) -> None:
    """Keep what a campaign was asked for, so that it can go on with the same."""
    folder = store.make_folder(runs_dir() / campaign, store.RUNS_HINT)
    store.write_text(folder / REQUEST, json.dumps({"only": list(only), "given": dict(given)}, indent=1))


def kept_request(campaign: str) -> tuple[list[str], dict[str, Any]]:
    """What a campaign was asked for.

    Raises:
        UsageError: there is no such campaign, or it was not started by `workbook run`.
    """
    try:
        request = json.loads((runs_dir() / campaign / REQUEST).read_text())
        return list(request["only"]), dict(request["given"])
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(
            f"Campaign {campaign!r} cannot be resumed: it has no {REQUEST}.", f"Known: {known_names()}."
        ) from None


def run(
    campaign: str,
    parameters: Mapping[type[Params], Mapping[str, Any]],
    *,
    resume: bool = False,
    on_done: Callable[[Finished], None] = lambda finished: None,
) -> Path:
    """Run the notebooks in order and render the report; returns the report's path.

    Args:
        parameters: what `plan` gave.
        resume: leave out notebooks that have a sealed and rendered run in this campaign, but for the report.
        on_done: called after each notebook.

    Raises:
        WorkbookError: a notebook failed (the message is its own last word), or another process runs this campaign.
    """
    require_checkout()
    with store.locked(campaign):
        for model, values in parameters.items():
            reusable = store.find(campaign, model.notebook) if resume and model is not ReportParams else []
            before = [one for one in reusable if (one.path / PAGE).is_file()]
            if before:
                on_done(Finished(before[-1], 0.0, reused=True))
            else:
                on_done(_execute(model.notebook, {**values, "campaign": campaign}))
    return reports_dir() / campaign / "index.html"


def _execute(notebook: str, values: Mapping[str, Any]) -> Finished:
    """One notebook: executed beside the runs, then moved into the run that it sealed, and rendered."""
    folder = runs_dir() / values["campaign"]
    executed = folder / f"{notebook}.running.ipynb"
    known = {one.id for one in store.find(values["campaign"], notebook)}
    started = time.monotonic()
    try:
        papermill.execute_notebook(
            str(NOTEBOOKS / f"{notebook}.ipynb"),
            str(executed),
            dict(values),
            kernel_name="python3",
            progress_bar={"desc": notebook, "leave": False},
            extra_arguments=[
                "--log-level=ERROR"
            ],  # the kernel warns of its loopback transport at every start
        )
    except PapermillExecutionError as error:
        failed = executed.replace(folder / f"{notebook}.failed.ipynb")
        raise WorkbookError(
            f"{notebook}: {error.evalue or error.ename}", f"As far as it got: {failed}"
        ) from error
    except (DeadKernelError, RuntimeError) as error:
        last = str(error).strip().partition("\n")[0]
        raise WorkbookError(
            f"{notebook}: its kernel died or did not start: {last}", f"As far as it got: {executed}"
        ) from error
    new = [one for one in store.find(values["campaign"], notebook) if one.id not in known]
    if not new:
        raise WorkbookError(f"{notebook} ended without sealing a run.", f"See {executed}.")
    sealed = new[-1]
    kept = executed.replace(sealed.path / "notebook.ipynb")
    page = render(kept, sealed.path / PAGE, title=TITLES[notebook])
    if notebook == REPORT:
        publish(page, reports_dir() / values["campaign"] / "index.html")
    return Finished(sealed, time.monotonic() - started)


def publish(page: Path, target: Path) -> None:
    """Put a rendered page where its readers look for it."""
    store.make_folder(target.parent, "Set WORKBOOK_REPORTS to a folder that is writable.")
    store.write_text(target, page.read_text(encoding="utf-8"))
