"""How long a server's log of 100 MB takes to be read for its capture, against grep for the same words in the same run.

    .venv/bin/python benchmarks/capture_log.py

The log is of one server that captured 52 shapes and then wrote a line for every decode batch.
"""

import subprocess
import tempfile
import time
from pathlib import Path

from tqdm import tqdm

from workbook.serving.capture_log import read_capture
from workbook.serving.log import decisive_line

SHAPES, DECODES = 52, 600_000


def write_log(log: Path, shapes: int) -> None:
    """A log whose capture ended after `shapes` of SHAPES shapes."""
    with log.open("w") as lines:
        for done in range(shapes + 1):
            name = f"Capturing batches (bs={SHAPES - done} avail_mem=5.00 GB)"
            bar = tqdm.format_meter(done, SHAPES, done / 2, prefix=name)
            lines.write(f"2026-11-30T16:40:{done:02}.000Z {bar}\n")
        for number in range(DECODES):
            lines.write(
                "2026-11-30T17:00:00.000Z [2026-11-30 17:00:00 TP0] Decode batch, #running-req: 256, "
                f"#token: {number}, token usage: 0.10, cuda graph: True, gen throughput (token/s): 1234.56\n"
            )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        for shapes, what in (
            (SHAPES, "a capture that ended"),
            (SHAPES - 2, "a capture that was interrupted"),
        ):
            write_log(log, shapes)
            began = time.perf_counter()
            found = read_capture(log)
            ours = time.perf_counter() - began
            began = time.perf_counter()
            decisive_line(log)
            decisive = time.perf_counter() - began
            began = time.perf_counter()
            subprocess.run(["grep", "-cE", "Captur|Compil", str(log)], stdout=subprocess.DEVNULL, check=True)
            grep = time.perf_counter() - began
            size = log.stat().st_size / 1e6
            print(
                f"{size:.0f} MB, {what}: {len(found.steps)} steps in {ours:.2f} s, the decisive line in "
                f"{decisive:.2f} s, grep {grep:.2f} s ({ours / grep:.0f} times grep)"
            )


if __name__ == "__main__":
    main()
