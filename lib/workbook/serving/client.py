"""SGLang's own serving benchmark as a process on the node: imported once, then given one point at a time."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from workbook.errors import WorkbookError
from workbook.node.base import NodeConnection, Process
from workbook.serving.log import new_lines, printable, where
from workbook.serving.records import Answer, Measured, answers, read_raw

POLL_S = 0.2
# Nothing is downloaded; and SGLang's benchmark imports what asks for a GPU's libraries, which the client does not need.
ENV = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "WORKBOOK_CPU_SGLANG": "1"}


class Client:
    """A context manager: inside it points can be measured, after it no process is left.

    Args:
        node: where it runs.
        folder: a new folder for the points, their raw records and the client's log.
        env: added to its environment.
        python: the Python that has SGLang, where it is not the node's.
        alive: called about five times a second; raises when a server has died.

    Raises:
        WorkbookError: on entry: the benchmark cannot be imported; later as `measure` says.
    """

    def __init__(
        self,
        node: NodeConnection,
        folder: Path,
        *,
        env: Mapping[str, str],
        python: str | None,
        alive: Callable[[], None],
    ) -> None:
        self.node, self.folder, self.log = node, folder, folder / "client.log"
        self._env = {**ENV, **env, "PYTHONPATH": _python_path(node, env)}
        self._python = python or node.python
        self._alive = alive
        self._given = 0

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        argv = [self._python, "-P", str(self.node.probes / "bench.py"), str(self.node.place(self.folder))]
        self._process = self.node.start(argv, log=self.log, env=self._env)
        try:
            self._said = client_lines(self._process, self.log, self._alive)
            self._wait_for("ready")
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stop()

    def measure(self, point: Mapping[str, Any]) -> tuple[list[Answer], Measured]:
        """Measure one point; its name is that of its raw files.

        Raises:
            WorkbookError: a server died, or the client could not measure it, ended, or left a record that cannot be
                read.
        """
        asked = self.folder / f"{self._given}.json"
        asked.write_text(json.dumps(point, indent=1) + "\n")
        self.node.put(asked, self.node.place(asked))
        self._given += 1
        told = self._wait_for("point")
        if "error" in told:
            raise WorkbookError(
                f"The benchmark could not measure {point['name']}: {printable(str(told['error']))}.",
                self._hint,
            )
        measured = Measured(
            int(told["clients"]), float(told["seconds"]), float(told["client_cpu"]), told["server_tokens"]
        )
        raws = [self.folder / f"{point['name']}-s{k}.jsonl" for k in range(measured.clients)]
        for raw in raws:
            self.node.get(self.node.place(raw), raw)
        return [one for raw in raws for one in answers(read_raw(raw))], measured

    @property
    def _hint(self) -> str:
        return f"Its own words are in {self.log}; the server's log may say more."

    def _wait_for(self, key: str) -> dict[str, Any]:
        for line in self._said:
            progress = read_progress(line)
            if progress is not None and key in progress:
                return progress
        status = self._process.stop()
        raise WorkbookError(
            f"The benchmark ended early, with exit status {status}: {where(self.log)}.", self._hint
        )


def client_lines(client: Process, log: Path, alive: Callable[[], None]) -> Iterator[str]:
    """The lines of the client's log as they are written, until it ends; `alive` is called whenever they are read."""
    lines, ended = new_lines(log), False
    while not ended:
        ended = client.poll() is not None
        alive()  # before the lines: what the client says then is only the consequence
        yield from iter(lines.__next__, None)
        if not ended:
            time.sleep(POLL_S)


def read_progress(line: str) -> dict[str, Any] | None:
    """The client's progress line; None for any other line of its log."""
    if not re.match(r'\{"(ready|point)": ', line):
        return None
    try:
        progress = json.loads(line)
    except json.JSONDecodeError:
        return None
    return progress if isinstance(progress, dict) else None


def _python_path(node: NodeConnection, env: Mapping[str, str]) -> str:
    """What the client's PYTHONPATH would be, with the overlay before it."""
    here = os.environ.get("PYTHONPATH", "") if node.node.kind == "local" else ""
    rest = env.get("PYTHONPATH", node.node.env.get("PYTHONPATH", here)).split(os.pathsep)
    overlay = str(node.overlay)
    return os.pathsep.join([overlay, *(one for one in rest if one not in ("", overlay))])
