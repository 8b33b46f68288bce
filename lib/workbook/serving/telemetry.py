"""The GPUs of a node while something runs there: sampled once a second, kept as a log."""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from workbook.errors import WorkbookError
from workbook.node.base import NodeConnection, Process
from workbook.serving.gpu_samples import read_samples
from workbook.serving.log import printable
from workbook.types import GpuSample


class Telemetry:
    """A context manager: inside it the node's GPUs are sampled, after it `samples` gives what was seen.

    Telemetry is beside the point of a run, so that it fails never ends one: `missing` then says why there is none.

    Args:
        node: where the GPUs are.
        log: a new file of this machine for the samples, JSON lines.
        period_s: seconds between samples.
        say: called once where the node has no GPU that can be read.

    Raises:
        WorkbookError: `log` is there already.
    """

    def __init__(
        self,
        node: NodeConnection,
        log: Path,
        *,
        period_s: float = 1.0,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        if log.exists():
            raise WorkbookError(f"{log} is there already.", "Give every telemetry a log of its own.")
        self.node, self.log, self.period_s, self._say = node, log, period_s, say
        self._process: Process | None = None

    def __enter__(self) -> Self:
        probe = [
            self.node.python,
            "-P",
            str(self.node.probes / "telemetry.py"),
            "--period",
            str(self.period_s),
        ]
        self._process = self.node.start(probe, log=self.log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.stop()
        if self.missing:
            self._say(f"No telemetry of {self.node.node.name}: {self.missing}.")

    def samples(self) -> list[GpuSample]:
        """What was seen so far, in the order of time; nothing where the node has no GPU."""
        return read_samples(self.log)[0]

    @property
    def missing(self) -> str:
        """Why there are no samples; empty where there are."""
        samples, none = read_samples(self.log)
        if samples:
            return ""
        said = self.log.read_text(errors="replace").strip().rpartition("\n")[2] if self.log.exists() else ""
        return printable(none or said) or "it was stopped before the first sample"
