"""How many of a server's batches ran in a CUDA graph, by its log: one above the largest captured size does not."""

import re
from pathlib import Path

# SGLang 0.5.9 to 0.5.23 write it for each prefill batch and for every fortieth decode batch
BATCH = re.compile(rb"(Prefill|Decode) batch\b")
IN_GRAPH = re.compile(rb"\bgraph: (True|False)\b")


def size(log: Path | None) -> int:
    """Bytes of a log so far; 0 of none."""
    return log.stat().st_size if log and log.is_file() else 0


def shares(log: Path | None, begin: int) -> dict[str, float | None]:
    """The shares of logged batches that ran in a graph, from a byte of the log on; None where none was logged.

    Returns:
        `prefill_in_graph` and `decode_in_graph`, as a BenchPoint has them.
    """
    seen: dict[bytes, list[bool]] = {b"Prefill": [], b"Decode": []}
    if log and log.is_file():
        with log.open("rb") as lines:
            lines.seek(begin)
            for line in lines:
                if (batch := BATCH.search(line)) and (told := IN_GRAPH.search(line, batch.end())):
                    seen[batch[1]].append(told[1] == b"True")
    return {
        f"{phase.decode().lower()}_in_graph": sum(found) / len(found) if found else None
        for phase, found in seen.items()
    }
