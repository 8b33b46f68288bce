"""What a sweep takes, and what it reads, against SGLang's own benchmark called by hand for each point.

    .venv/bin/python benchmarks/bench_client.py

One real server of the profile tiny-cpu; both measure the same points, by turns. By hand each point pays the client's
import again.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from workbook import catalog
from workbook.node.connect import connect
from workbook.node.probe import overlay_env
from workbook.serving.bench import MIN_REQUESTS, Plan, Target, run_bench
from workbook.serving.records import read_raw
from workbook.serving.server import Server
from workbook.types import LaunchProfile

CONCURRENCY, POINTS = 4, 4


def by_hand(server: Server, profile: LaunchProfile, raw: Path, env: dict[str, str]) -> float:
    """Output tokens/s as SGLang's benchmark says, in a process of its own."""
    options = {
        "backend": "sglang", "base-url": server.node_url, "model": server.model_path,
        "dataset-name": "random-ids", "random-input-len": profile.input_tokens,
        "random-output-len": profile.output_tokens, "random-range-ratio": 1.0, "num-prompts": MIN_REQUESTS,
        "max-concurrency": CONCURRENCY, "warmup-requests": CONCURRENCY, "output-file": raw,
    }  # fmt: skip
    argv = [sys.executable, "-P", "-m", "sglang.benchmark.serving"]
    argv += [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    subprocess.run([*argv, "--tokenize-prompt", "--flush-cache"], env=env, check=True, capture_output=True)
    return float(read_raw(raw)["output_throughput"])


def main() -> None:
    node, profile = connect("local"), catalog.load(LaunchProfile, "tiny-cpu")
    env = {**overlay_env(node), **profile.env, "PATH": "/usr/bin:/bin"}
    with tempfile.TemporaryDirectory() as folder, Server(node, profile, log=Path(folder) / "log") as server:
        began = time.perf_counter()
        hand = [by_hand(server, profile, Path(folder) / f"{n}.jsonl", env) for n in range(POINTS)]
        hand_s = time.perf_counter() - began
        plan = Plan((CONCURRENCY,), profile.input_tokens, profile.output_tokens, repeats=POINTS)
        target = Target("ours", server.node_url, server.model_path, server.death)
        began = time.perf_counter()
        sweep = run_bench(node, [target], plan, raw_dir=Path(folder) / "raw", run_id="r", env=profile.env)
        ours_s = time.perf_counter() - began
    ours = [point.output_tok_s for point in sweep.points]
    print(f"median of {POINTS}: {median(ours):.0f} tok/s, by hand {median(hand):.0f}")
    print(
        f"{POINTS} points in {ours_s:.1f} s, {ours_s / hand_s:.2f} times SGLang's benchmark called for each"
    )


if __name__ == "__main__":
    main()
