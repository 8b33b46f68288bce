"""Run SGLang's own serving benchmark for several points in one process, so that its slow import is paid once.

    python bench.py SPEC.json

SPEC.json: {"url", "model", "raw_dir", "points": [{"name", "concurrency", "num_prompts", "input_tokens",
"output_tokens", "seed", "warmup_requests", "limit_s"}]}. Each point leaves RAW_DIR/NAME.jsonl, the
benchmark's own record with all details, and a line on standard output: {"point": NAME}, or {"point": NAME,
"error": TEXT}, after which nothing is measured. What the benchmark itself prints goes to standard error.
"""

import json
import os
import runpy
import signal
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path

MODULES = ("sglang.benchmark.serving", "sglang.bench_serving")  # the second up to SGLang 0.5.15


def benchmark_module() -> str:
    """The name under which the installed SGLang has its benchmark."""
    for name in MODULES:
        try:
            if find_spec(name) is not None:
                return name
        except ModuleNotFoundError:  # no parent package of that name
            continue
    raise ModuleNotFoundError(f"no SGLang benchmark is installed (looked for {' and '.join(MODULES)})")


def options(spec: dict, point: dict, raw: Path) -> list[str]:
    """The benchmark's command line for one point."""
    choices = {
        "--backend": "sglang",
        "--base-url": spec["url"],
        "--model": spec["model"],
        "--dataset-name": "random-ids",  # needs no download
        "--random-input-len": point["input_tokens"],
        "--random-output-len": point["output_tokens"],
        "--random-range-ratio": 1.0,  # every request has exactly these lengths
        "--num-prompts": point["num_prompts"],
        "--max-concurrency": point["concurrency"],
        "--warmup-requests": point["warmup_requests"],
        "--seed": point["seed"],
        "--output-file": raw,
    }
    switches = ["--tokenize-prompt", "--flush-cache", "--output-details", "--disable-tqdm"]
    return [str(part) for pair in choices.items() for part in pair] + switches


def measure(module: str, spec: dict, point: dict) -> dict:
    """Run one point; what its progress line says."""
    raw = Path(spec["raw_dir"], f"{point['name']}.jsonl")
    failed = ""
    sys.argv = [module, *options(spec, point, raw)]
    signal.setitimer(signal.ITIMER_REAL, point["limit_s"])
    try:
        with redirect_stdout(sys.stderr):
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as stop:  # how the benchmark reports some of its failures
        if stop.code not in (0, None):
            failed = f"the client stopped: {stop.code}"
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if not failed and not raw.exists():
        failed = "the client wrote no record"
    return {"point": point["name"], **({"error": failed} if failed else {})}


def out_of_time(number, frame):
    raise SystemExit("out of time")  # the one kind of exception that an event loop lets through


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        print("usage: bench.py SPEC.json", file=sys.stderr)
        return 2
    spec = json.loads(Path(argv[0]).read_text())
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    signal.signal(signal.SIGALRM, out_of_time)
    module = benchmark_module()
    for point in spec["points"]:
        progress = measure(module, spec, point)
        print(f"\n{json.dumps(progress)}", flush=True)  # a line of its own, whatever was printed before
        if "error" in progress:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
