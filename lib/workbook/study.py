"""What every notebook starts and ends with: checked parameters in, a sealed run out."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

from workbook import catalog, store
from workbook.node import snapshot
from workbook.node.base import NodeConnection
from workbook.node.connect import connect
from workbook.params import Params
from workbook.paths import require_checkout
from workbook.types import EnvSnapshot, Stack, Status


@dataclass(frozen=True)
class Sealed:
    """How a run ended, as the last cell of a notebook shows it."""

    run_id: str
    verdict: str
    status: Status

    def __repr__(self) -> str:
        return f"{self.verdict}\n{self.run_id}: {self.status}"

    def _repr_html_(self) -> str:
        return (
            f'<p class="verdict"><strong>{escape(self.verdict).replace(chr(10), "<br>")}</strong></p>'
            f'<p class="run">Run <code>{escape(self.run_id)}</code>: {escape(self.status)}</p>'
        )


@dataclass(frozen=True)
class Study:
    """A notebook's run in the making: where it runs, with which versions, and where its records go."""

    params: Any
    run: store.Run
    node: NodeConnection
    stack: Stack
    env: EnvSnapshot

    def seal(
        self,
        verdict: str,
        status: Status = Status.OK,
        *,
        applied: Iterable[str] = (),
        parents: Iterable[str] = (),
    ) -> Sealed:
        """Seal the run.

        Args:
            verdict: the answer, in a sentence or three.
            applied: what was patched, as the traces told: "patch: module.function (hash)".
            parents: ids of the runs that this one was made from.
        """
        hashes = dict(_target_and_hash(one) for one in applied)
        env = self.env.model_copy(update={"patched_sources": hashes})
        sealed = self.run.seal(status, env, verdict=verdict, parents=parents)
        return Sealed(sealed.id, verdict, status)


def begin(params: Params) -> Study:
    """Connect to the node, take its snapshot and create the run.

    Raises:
        UsageError: no such node or stack.
        WorkbookError: the node does not answer, or the run's folder cannot be made.
    """
    require_checkout()
    node = connect(params.node)
    stack = catalog.load(Stack, getattr(params, "stack", node.node.stack))
    env = snapshot.take(node, stack)
    run = store.create(params.campaign, params.notebook, params.label, params.model_dump(mode="json"))
    return Study(params, run, node, stack, env)


def _target_and_hash(applied: str) -> tuple[str, str]:
    target, _, source = applied.partition(": ")[2].partition(" (")
    return target, source.rstrip(")")
