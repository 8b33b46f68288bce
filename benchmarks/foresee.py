"""Where the time of a forecast goes: GLM-5 at full depth as one rank of eight, and a few of its layers, in one run.

    .venv/bin/python benchmarks/foresee.py

At the patch level at which it traces, since a model that stops is traced no further. The rival is what any answer from
SGLang costs at least: the import of its server's arguments alone, by the same Python from the same sources.
"""

import os
import resource
import subprocess
import time
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from workbook import catalog
from workbook.boundary.foresee import foresee
from workbook.node.base import NodeConnection
from workbook.node.connect import connect
from workbook.node.probe import sources_env, sources_python
from workbook.types import Forecast, LaunchProfile, Stack

PROFILE, STACK, LEVEL, IMPORTS = "glm5-nvfp4-tp8", "seed", 4, 3
REST = "start and end"


@dataclass(frozen=True)
class Timed:
    """A forecast, and the seconds that it took from outside: of the clock, and of CPU, which a busy machine leaves."""

    found: Forecast
    seconds: float
    cpu: float

    def phases(self) -> dict[str, float]:
        told = dict(self.found.seconds)
        return told | {REST: self.seconds - sum(told.values())}


def timed(node: NodeConnection, *, quick: bool) -> Timed:
    profile, stack = catalog.load(LaunchProfile, PROFILE), catalog.load(Stack, STACK)
    began, spent = time.perf_counter(), cpu_of_children()
    found = foresee(node, stack, profile, patch_level=LEVEL, quick=quick)
    return Timed(found, time.perf_counter() - began, cpu_of_children() - spent)


def cpu_of_children() -> float:
    """CPU seconds of the processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def import_alone(node: NodeConnection) -> float:
    """Seconds of the median import; the first, which reads the files from the disk, is left out."""
    stack = catalog.load(Stack, STACK)
    env = os.environ | sources_env(node, stack) | {"WORKBOOK_CPU_SGLANG": "1"}
    argv = [sources_python(node, stack), "-P", "-c", "import sglang.srt.server_args"]
    took = []
    for _ in range(1 + IMPORTS):
        began = time.perf_counter()
        subprocess.run(argv, env=env, check=True, capture_output=True)
        took.append(time.perf_counter() - began)
    return median(took[1:])


def table(runs: dict[str, Timed]) -> Table:
    shown = Table("phase", title=f"{PROFILE} on {STACK}, patch level {LEVEL}")
    for name in runs:
        shown.add_column(f"{name}, s", justify="right")
        shown.add_column("share", justify="right")
    parts = {name: run.phases() for name, run in runs.items()}
    for phase in [*dict.fromkeys(one for part in parts.values() for one in part if one != REST), REST]:
        cells = [
            (f"{part[phase]:.1f}", f"{part[phase] / runs[name].seconds:.0%}") if phase in part else ("", "")
            for name, part in parts.items()
        ]
        shown.add_row(phase, *(cell for pair in cells for cell in pair))
    totals = [(f"{run.seconds:.1f}", "100%") for run in runs.values()]
    shown.add_section()
    shown.add_row("all", *(cell for pair in totals for cell in pair))
    return shown


def main() -> None:
    node = connect("local")
    alone = import_alone(node)
    runs = {"full depth": timed(node, quick=False), "quick": timed(node, quick=True)}
    Console(width=100).print(table(runs))
    for name, run in runs.items():
        found = run.found
        print(
            f"{name}: {found.outcome}, {found.layers} layers, {found.graphs[0].pieces if found.graphs else 0} pieces, "
            f"{run.cpu:.0f} s of CPU, peak memory {found.peak_gib:.2f} GiB"
        )
    ratios = " and ".join(f"{run.seconds / alone:.1f} ({name})" for name, run in runs.items())
    print(
        f"SGLang's arguments alone are imported in {alone:.1f} s: a forecast takes {ratios} times the import"
    )


if __name__ == "__main__":
    main()
