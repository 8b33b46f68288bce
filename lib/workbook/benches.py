"""A benchmark on disk: a run of the campaign `bench`. What was measured stays, also where the sweep was broken off."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict

from workbook import catalog, measurements, store, verdicts
from workbook.errors import WorkbookError
from workbook.node import snapshot
from workbook.node.base import NodeConnection
from workbook.serving.bench import Plan, SoFar, Target, ends, run_bench
from workbook.serving.telemetry import Telemetry
from workbook.types import BenchPoint, Measurement, Stack, Status

LABEL_CHARS = 40  # of a run's name


def begin(target: Target, plan: Plan, asked: Mapping[str, object]) -> store.Run:
    """A new benchmark; nothing is measured yet.

    Args:
        target: gives its name.
        asked: what is measured.
    """
    params = {**asked, "label": target.label, **asdict(plan)}
    return store.create(store.BENCH, store.BENCH, target.stem[:LABEL_CHARS], params)


def measure(
    node: NodeConnection,
    run: store.Run,
    plan: Plan,
    serving: AbstractContextManager[Target],
    *,
    served: Callable[[], Measurement] = Measurement,
    on_point: Callable[[BenchPoint, SoFar], None] = lambda point, so_far: None,
) -> store.SealedRun:
    """Measure one server and seal the run.

    Args:
        run: a new one, whose raw folder takes the client's records.
        serving: the server is ready inside it.
        served: how the server went, asked at the end; nothing of one that ran before.
        on_point: called with each point as it is finished.

    Raises:
        WorkbookError: the server or the client failed. Points that were measured before are in a sealed run of
            status crashed, which the sentence names; so they are when KeyboardInterrupt breaks the sweep off.
    """
    env = snapshot.take(node, catalog.load(Stack, node.node.stack))
    telemetry = Telemetry(node, run.raw / "telemetry.log")
    points: list[BenchPoint] = []
    targets: list[Target] = []

    def keep(point: BenchPoint, so_far: SoFar) -> None:
        points.append(point)
        on_point(point, so_far)

    def seal(error: str = "") -> store.SealedRun:
        measured = {
            "points": tuple(points),
            "ends": tuple(
                ends(points, [one.label for one in targets], plan, "broken off" if error else "time spent")
            ),
            "samples": tuple(telemetry.samples()),
        }
        measurements.keep(run, served().model_copy(update=measured))
        usable = any(point.usable for point in points)
        verdict = verdicts.throughput(points, env) if usable else "No point came back whole."
        status = Status.OK if usable and not error else Status.CRASHED
        return run.seal(status, env, verdict=verdict, error=error)

    try:
        with telemetry, serving as target:
            targets.append(target)
            run_bench(node, targets, plan, raw_dir=run.raw / "bench", run_id=run.id, on_point=keep)
    except WorkbookError as error:
        if not points:
            raise
        # a run that is sealed is no longer where its logs were written
        message, hint = (
            text.replace(str(run.path), str(run.path.with_name(run.id)))
            for text in (error.message, error.hint)
        )
        raise WorkbookError(message, f"{hint} {_kept(seal(f'{message} {hint}'.strip()))}".strip()) from error
    except KeyboardInterrupt as stop:
        if not points:
            raise
        raise KeyboardInterrupt(_kept(seal("interrupted"))) from stop
    return seal()


def _kept(run: store.SealedRun) -> str:
    return f"What was measured is kept in {run.path}"
