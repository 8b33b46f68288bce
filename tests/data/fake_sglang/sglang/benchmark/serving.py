"""A benchmark client that writes a record, or misbehaves as FAKE_CLIENT says. It takes SGLang's options."""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path


async def hang():
    while True:
        await asyncio.sleep(0.01)


def cli_main():
    parser = argparse.ArgumentParser()
    for option in ("backend", "base-url", "model", "dataset-name", "output-file"):
        parser.add_argument(f"--{option}")
    for option in ("random-input-len", "random-output-len", "num-prompts", "max-concurrency", "seed"):
        parser.add_argument(f"--{option}", type=int)
    parser.add_argument("--random-range-ratio", type=float)
    parser.add_argument("--warmup-requests", type=int)
    for switch in ("tokenize-prompt", "flush-cache", "output-details", "disable-tqdm"):
        parser.add_argument(f"--{switch}", action="store_true")
    args = parser.parse_args()
    mode = os.environ.get("FAKE_CLIENT", "")
    print("benchmark_args=", args)
    print('{"point": not a progress line', end="")  # nor does it end its line
    if mode == "raises":
        raise ValueError("Warmup failed \x1b[2J- connection refused")
    if mode == "exits":
        sys.exit(1)
    if mode == "dies":
        os._exit(7)
    if mode == "hangs":
        asyncio.run(hang())
    if mode == "writes nothing":
        return
    record = {
        "completed": args.num_prompts - (1 if mode == "loses one" else 0),
        "duration": 2.0,
        "output_throughput": args.num_prompts * args.random_output_len / 2.0,
        "median_ttft_ms": 1.0 * args.max_concurrency,
        "p90_ttft_ms": 2.0 * args.max_concurrency,
        "p99_ttft_ms": 3.0 * args.max_concurrency,
        "median_itl_ms": 4.0,
        "p90_itl_ms": 5.0,
        "p99_itl_ms": 6.0,
        "argv": sys.argv[1:],
        "offline": os.environ.get("HF_HUB_OFFLINE"),
    }
    with Path(args.output_file).open("a") as file:
        file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    cli_main()
