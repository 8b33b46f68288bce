"""The records of one campaign, gathered from its sealed runs: what the report is made of."""

from collections.abc import Sequence
from dataclasses import dataclass

from workbook import measurements, store
from workbook.boundary.levels import LEVELS
from workbook.errors import UsageError, WorkbookError
from workbook.report.forecast_words import sentence
from workbook.store import SealedRun
from workbook.types import (
    Blocker,
    EnvSnapshot,
    Forecast,
    Foretold,
    Measurement,
    PatchDiff,
    RemedyOutcome,
    ServeOutcome,
    SplitOutcome,
    Stage,
    StageOutcome,
    Status,
    TraceOutcome,
)

BASELINE = "00_baseline"
TRACES = "02_flashinfer_patches"
VERSIONS = ("torch", "sglang", "flashinfer-python")


@dataclass(frozen=True)
class Served:
    """One run's servers."""

    run: SealedRun
    found: Measurement


@dataclass(frozen=True)
class Evidence:
    """What a campaign found. `baselines` are the runs of one server, `comparisons` those of a pair."""

    runs: list[SealedRun]
    outcomes: list[TraceOutcome]
    blockers: list[Blocker]
    remedies: list[RemedyOutcome]
    forecasts: list[Forecast]
    splits: list[SplitOutcome]
    diffs: list[PatchDiff]
    baselines: list[Served]
    comparisons: list[Served]

    @property
    def env(self) -> EnvSnapshot:
        """The environment of the newest run; the others have the same hardware and versions."""
        return max(self.runs, key=lambda run: run.record.started).env

    def suffix(self, run: SealedRun) -> str:
        """What tells this run from others of its notebook: its label, where there are several."""
        several = sum(one.record.notebook == run.record.notebook for one in self.runs) > 1
        return f" · {run.record.label}" if several else ""

    @property
    def ids(self) -> list[str]:
        return [run.id for run in self.runs]


def gather(campaign: str, runs: str = "") -> Evidence:
    """Read a campaign's records.

    Args:
        runs: comma-separated run ids; empty for the newest sealed run of every notebook and label.

    Raises:
        UsageError: the campaign has no sealed run, or a run id is not one of its runs.
        WorkbookError: the runs are of different hardware or versions, or a record is damaged.
    """
    sealed = [run for run in store.find(campaign) if run.record.notebook != "04_report"]
    chosen = _named(sealed, runs) if runs else _newest(sealed)
    if not chosen:
        raise UsageError(f"Campaign {campaign} has no finished run.", "Run `workbook run` first.")
    _check_alike(chosen)
    return Evidence(
        runs=chosen,
        outcomes=_all(chosen, "outcomes", TraceOutcome, notebook=TRACES)
        or _all(chosen, "outcomes", TraceOutcome),
        blockers=_all(chosen, "blockers", Blocker),
        remedies=_all(chosen, "remedies", RemedyOutcome),
        forecasts=_all(chosen, "forecasts", Forecast),
        splits=_all(chosen, "splits", SplitOutcome),
        diffs=_all(chosen, "diffs", PatchDiff),
        baselines=[
            Served(run, measurements.read(run.path)) for run in chosen if run.record.notebook == BASELINE
        ],
        comparisons=[
            Served(run, measurements.read(run.path))
            for run in chosen
            if run.record.notebook != BASELINE and run.has("serve")
        ],
    )


def _named(sealed: Sequence[SealedRun], runs: str) -> list[SealedRun]:
    by_id = {run.id: run for run in sealed}
    wanted = [part.strip() for part in runs.split(",") if part.strip()]
    for run_id in wanted:
        if run_id not in by_id:
            raise UsageError(
                f"No finished run {run_id!r} in this campaign;", f"it has {', '.join(by_id) or 'none'}."
            )
    return [by_id[run_id] for run_id in wanted]


def _newest(sealed: Sequence[SealedRun]) -> list[SealedRun]:
    newest = {(run.record.notebook, run.record.label): run for run in sealed}
    return sorted(newest.values(), key=lambda run: run.record.notebook)


def _check_alike(runs: Sequence[SealedRun]) -> None:
    """One report, one kind of hardware, one set of versions: nothing else may share an axis unasked."""
    kinds: dict[str, str] = {}
    for run in runs:
        env = run.env
        versions = ", ".join(f"{name} {env.packages.get(name, 'absent')}" for name in VERSIONS)
        kinds.setdefault(f"{env.hardware}, {versions}", run.id)
    if len(kinds) > 1:
        told = "; ".join(f"{kind} ({run_id})" for kind, run_id in kinds.items())
        raise WorkbookError(
            f"Runs of different hardware or versions do not go into one report: {told}.",
            "Name those that belong together: workbook report CAMPAIGN -p runs=ID,ID",
        )


def _records(run: SealedRun, name: str, kind: type[store.R]) -> list[store.R]:
    return run.records(name, kind) if run.has(name) else []


def _all(
    runs: Sequence[SealedRun], name: str, kind: type[store.R], notebook: str | None = None
) -> list[store.R]:
    return [
        one for run in runs if notebook in (None, run.record.notebook) for one in _records(run, name, kind)
    ]


def stage_outcomes(evidence: Evidence) -> list[StageOutcome]:
    """The cells of the outcome matrix: a row a patch level and run, and one for each forecast and server."""
    cells: list[StageOutcome] = []
    for run in evidence.runs:
        suffix = evidence.suffix(run)
        outcomes = outcomes_of(run) if run.record.notebook == TRACES else []
        splits = _records(run, "splits", SplitOutcome)
        for one in LEVELS:
            label = f"level {one.level} · {one.name}{suffix}"
            traced = [found for found in outcomes if found.patch_level == one.level]
            if traced:
                cells += [
                    StageOutcome(label=label, stage=Stage.IMPORT, status=Status.OK),
                    _traced(label, traced),
                ]
            for split in splits:
                if split.patch_level == one.level:
                    cells += _split(label, split, [cell.stage for cell in cells if cell.label == label])
        cells += [_foretold(one, suffix) for one in _records(run, "forecasts", Forecast)]
        found = measurements.read(run.path)
        for serve in found.serves:
            cells += _served(f"server · {serve.label or serve.profile}{suffix}", serve, found)
    return sorted(cells, key=lambda cell: not cell.label.startswith("level"))


def _foretold(found: Forecast, suffix: str) -> StageOutcome:
    """A forecast: of a trace, and of nothing after it."""
    ends = {
        Foretold.TRACES: Status.OK,
        Foretold.STOPS: found.blockers[0].status if found.blockers else Status.CRASHED,
    }
    return StageOutcome(
        label=f"forecast · {found.profile} · level {found.patch_level}{suffix}",
        stage=Stage.TRACE,
        status=ends.get(found.outcome, Status.NOT_SUPPORTED_HERE),
        detail=sentence(found),
    )


def outcomes_of(run: SealedRun) -> list[TraceOutcome]:
    """The traces of one run."""
    return _records(run, "outcomes", TraceOutcome)


def anchor(outcome: TraceOutcome) -> str:
    """The id of a trace's deciding lines in the report."""
    return f"level-{outcome.patch_level}-{outcome.process_state}"


def _traced(label: str, traced: Sequence[TraceOutcome]) -> StageOutcome:
    """Cold and warm in one cell: passed only if both did."""
    failed = [one for one in traced if one.status is not Status.OK]
    detail = "; ".join(f"{one.process_state}: {one.operation}" for one in failed) or "cold and warm"
    return StageOutcome(
        label=label,
        stage=Stage.TRACE,
        status=failed[-1].status if failed else Status.OK,
        detail=detail,
        evidence=f"#{anchor(failed[-1])}" if failed else "",
    )


def _split(label: str, split: SplitOutcome, have: Sequence[Stage]) -> list[StageOutcome]:
    return [
        StageOutcome(label=label, stage=stage, status=status, detail=split.reasons.get(stage, ""))
        for stage, status in split.stages.items()
        if stage not in have
    ]


def _served(label: str, serve: ServeOutcome, found: Measurement) -> list[StageOutcome]:
    """A server's stages: capture where it captured or died of it, serve, bench, and the accuracy of a candidate."""
    cells = []
    steps = [step for step in found.steps if step.label == serve.label]
    if steps and not (serve.ready_s is None and serve.status is not Status.OK):
        shapes = (
            f"{len(steps)} shapes in {serve.capture_s:.0f} s" if serve.capture_s else f"{len(steps)} shapes"
        )
        cells.append(StageOutcome(label=label, stage=Stage.CAPTURE, status=Status.OK, detail=shapes))
    elif steps:
        cells.append(StageOutcome(label=label, stage=Stage.CAPTURE, status=serve.status, detail=serve.reason))
    ready = f"ready after {serve.ready_s:.0f} s" if serve.ready_s else serve.reason
    cells.append(StageOutcome(label=label, stage=Stage.SERVE, status=serve.status, detail=ready))
    if points := [point for point in found.points if serve.label in ("", point.label)]:
        failed = sum(point.failed + point.short for point in points)
        status = Status.OK if not failed else Status.CRASHED
        detail = f"{len(points)} points, {failed} failed or short requests"
        cells.append(StageOutcome(label=label, stage=Stage.BENCH, status=status, detail=detail))
    cells += [
        StageOutcome(label=label, stage=Stage.ACCURACY, status=one.status, detail=one.reason)
        for one in found.accuracy
        if one.candidate == serve.label
    ]
    return cells
