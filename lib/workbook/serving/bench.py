"""One sweep with SGLang's own serving benchmark."""

import json
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from workbook.errors import UsageError, WorkbookError
from workbook.node.base import NodeConnection, Process
from workbook.serving.launch import server_env
from workbook.serving.log import new_lines, printable, where
from workbook.serving.records import parse_point, read_raw
from workbook.types import BenchPoint, LaunchProfile

MIN_REQUESTS = 16  # with fewer not even a median means much
MAX_WARMUP_REQUESTS = 16
POLL_S = 0.5


def run_bench(
    node: NodeConnection,
    server_url: str,
    profile: LaunchProfile,
    model_path: str,
    *,
    concurrencies: Sequence[int],
    repeats: int,
    raw_dir: Path,
    label: str,
    run_id: str,
    seed: int,
    on_point: Callable[[BenchPoint], None] | None = None,
    server_death: Callable[[], str | None] = lambda: None,
    point_limit_s: float = 1800.0,
) -> list[BenchPoint]:
    """Measure every concurrency, then all of them again, `repeats` times over.

    The repeats are interleaved so that a drift of the machine does not pass for a difference. Repeat r draws
    its prompts from seed + r, at every concurrency and for every label.

    Args:
        node: where the client runs.
        server_url: the server's address, as the node sees it.
        profile: gives the lengths in tokens, the requests per slot and the environment.
        model_path: the model whose tokenizer the client uses.
        concurrencies: requests in flight, one point each.
        repeats: how often each point is measured.
        raw_dir: where the raw records go, with the client's log and its specification beside them.
        label: what is measured, such as "eager"; it names the raw files.
        run_id: the run that these points belong to.
        seed: of the first repeat's prompts.
        on_point: called with each point as it is finished.
        server_death: asked about twice a second how the server died, such as `Server.death`; None while it lives.
        point_limit_s: seconds after which one point is given up.

    Raises:
        UsageError: there is nothing to measure, or the label was measured into `raw_dir` before.
        WorkbookError: the server died, or the client failed, or left a record that cannot be read.
    """
    if not concurrencies or min(concurrencies) < 1 or repeats < 1:
        raise UsageError(
            f"There is nothing to measure at concurrencies {list(concurrencies)} x {repeats} repeats;",
            "give at least one concurrency and one repeat, each of them 1 or more.",
        )
    stem = re.sub(r"[^A-Za-z0-9]+", "-", label).strip("-").lower() or "bench"
    spec, log = raw_dir / f"{stem}-spec.json", raw_dir / f"{stem}-client.log"
    if spec.exists():
        raise UsageError(f"{raw_dir} has records of {label!r} already;", "they are never overwritten.")
    points = [
        plan_point(profile, stem, concurrency, repeat, seed + repeat) | {"limit_s": point_limit_s}
        for repeat in range(repeats)
        for concurrency in dict.fromkeys(concurrencies)
    ]
    asked = {"url": server_url, "model": model_path, "raw_dir": str(raw_dir.absolute()), "points": points}
    raw_dir.mkdir(parents=True, exist_ok=True)
    spec.write_text(json.dumps(asked, indent=2) + "\n")
    node.put(spec, spec)
    done = []
    with closing(follow_client(node, spec, log, profile, server_death)) as measured:
        for point in points:
            if next(measured, None) != point["name"]:
                raise WorkbookError(
                    f"The benchmark left out {point['name']}.", f"Its own words are in {log}."
                )
            raw = raw_dir / f"{point['name']}.jsonl"
            node.get(raw, raw)
            found = parse_point(
                read_raw(raw),
                run_id=run_id,
                label=label,
                concurrency=point["concurrency"],
                repeat=point["repeat"],
                requested=point["num_prompts"],
                seed=point["seed"],
            )
            done.append(found)
            if on_point is not None:
                on_point(found)
    return done


def plan_point(profile: LaunchProfile, stem: str, concurrency: int, repeat: int, seed: int) -> dict[str, Any]:
    """What the client is told about one point; the name is that of its raw file."""
    return {
        "name": f"{stem}-c{concurrency}-r{repeat}",
        "concurrency": concurrency,
        "repeat": repeat,
        "num_prompts": max(concurrency * profile.requests_per_slot, MIN_REQUESTS),
        "input_tokens": profile.input_tokens,
        "output_tokens": profile.output_tokens,
        "seed": seed,
        "warmup_requests": min(concurrency, MAX_WARMUP_REQUESTS),
    }


def follow_client(
    node: NodeConnection,
    spec: Path,
    log: Path,
    profile: LaunchProfile,
    server_death: Callable[[], str | None],
) -> Generator[str, None, None]:
    """Run the client, and name each point as soon as it is measured.

    Raises:
        WorkbookError: the server died, or the client could not measure a point, or ended early.
    """
    env = server_env(profile, pythonpath=node.node.env.get("PYTHONPATH"))
    env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    client = node.start([node.python, "-P", str(node.probes / "bench.py"), str(spec)], log=log, env=env)
    hint = f"Its own words are in {log}; the server's log may say more."
    try:
        for line in client_lines(client, log, server_death):
            progress = read_progress(line)
            if progress is None:
                continue
            if "error" in progress:
                failed = f"{progress['point']}: {printable(progress['error'])}"
                raise WorkbookError(f"The benchmark could not measure {failed}.", hint)
            yield progress["point"]
    finally:
        status = client.stop()
    if status != 0:
        raise WorkbookError(f"The benchmark ended early, with exit status {status}: {where(log)}.", hint)


def client_lines(client: Process, log: Path, server_death: Callable[[], str | None]) -> Iterator[str]:
    """The lines of the client's log as they are written, until it ends.

    Raises:
        WorkbookError: the server died.
    """
    lines, ended = new_lines(log), False
    while not ended:
        ended = client.poll() is not None
        if death := server_death():  # before the lines: what the client says then is only the consequence
            raise WorkbookError(f"The server died during the benchmark: it {death}.")
        yield from iter(lines.__next__, None)
        if not ended:
            time.sleep(POLL_S)


def read_progress(line: str) -> dict[str, str] | None:
    """The client's progress line; None for any other line of its log."""
    if not line.startswith('{"point": '):
        return None
    try:
        return {str(key): str(value) for key, value in json.loads(line).items()}
    except json.JSONDecodeError:
        return None
