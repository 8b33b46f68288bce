"""A benchmark client that writes a record, or misbehaves as FAKE_CLIENT says.

It takes SGLang's options and has the functions of the same names, which are called in the same order.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path


class Tokenizer:
    vocab_size = 1000

    def decode(self, ids):
        return " ".join(map(str, ids))


def get_tokenizer(name):
    return Tokenizer()


async def get_request(requests, rate):
    for request in requests:
        yield request


def calculate_metrics(outputs):
    return sum(outputs)


async def hang():
    while True:
        await asyncio.sleep(0.01)


async def benchmark(args, prompts, mode):
    if args.warmup_requests and mode == "raises":
        raise ValueError("Warmup failed \x1b[2J- connection refused")
    start = time.perf_counter()
    sent = [prompt async for prompt in get_request(prompts, 1)]
    if mode == "hangs":
        await hang()
    if mode == "dies":
        os._exit(7)
    until = time.perf_counter() + 0.02
    while time.perf_counter() < until:
        if mode != "spins":
            time.sleep(0.005)
    lengths = [args.random_output_len] * len(sent)
    if mode == "loses one":
        lengths[0] = 0
    if mode == "cuts one":
        lengths[0] -= 1
    calculate_metrics(lengths)
    return time.perf_counter() - start, sent, lengths


def cli_main():
    parser = argparse.ArgumentParser()
    for option in ("backend", "base-url", "model", "tokenizer", "dataset-name", "output-file"):
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
    if mode == "exits":
        sys.exit(1)
    random.seed(args.seed)
    tokenizer = get_tokenizer(args.tokenizer or args.model)
    prompts = [
        random.choices(range(tokenizer.vocab_size), k=args.random_input_len) for _ in range(args.num_prompts)
    ]
    if not args.tokenize_prompt:
        prompts = [tokenizer.decode(prompt) for prompt in prompts]
    duration, sent, lengths = asyncio.run(benchmark(args, prompts, mode))
    if mode == "writes nothing":
        return
    gap = 0.00001 if mode == "bursts" else 0.004
    record = {
        "completed": sum(1 for length in lengths if length),
        "duration": duration,
        "output_lens": lengths,
        "ttfts": [0.001 * args.max_concurrency if length else 0.0 for length in lengths],
        "itls": [
            [gap] * (length - 2) + [0.004 * (length - 1) - gap * (length - 2)] if length else []
            for length in lengths
        ],
        "argv": sys.argv[1:],
        "offline": os.environ.get("HF_HUB_OFFLINE"),
        "prompts": sent,
    }
    with Path(args.output_file).open("a") as file:
        file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    cli_main()
