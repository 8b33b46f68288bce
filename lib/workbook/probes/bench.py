"""Run SGLang's own serving benchmark, a point at a time, in one process, so that its slow import is paid once.

    python bench.py FOLDER

Prints {"ready": true} once the benchmark is imported. FOLDER/0.json, FOLDER/1.json, ... are then measured, each as soon
as it is there: {"name", "url", "engine", "model", "tokenizer", "concurrency", "num_prompts", "input_tokens",
"output_tokens", "seed", "warmup_requests", "clients", "limit_s"}. Each ends with a line on standard output:
{"point": NAME, "clients", "seconds", "client_cpu", "server_tokens"}, or {"point": NAME, "error": TEXT}.

One client process is soon slower than the server that it measures, so a point is spread over forks of this one, each
with its share of the slots and of the requests. The first warms the server up and empties its cache; when all stand
before their first request, they start together. Each leaves FOLDER/NAME-sK.jsonl, the benchmark's own record: its
lengths and latencies are those of the benchmark; its `duration`, and the rates made from it, count the wait as well.
`seconds` is from the first process's start to the last one's end. What the benchmark prints goes to standard error.
"""

import ast
import importlib
import json
import math
import multiprocessing
import os
import random
import sys
import time
from dataclasses import dataclass
from http.client import HTTPException
from importlib.util import find_spec
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

MODULES = ("sglang.benchmark.serving", "sglang.bench_serving")  # the second up to SGLang 0.5.15
SLOTS_PER_CLIENT = 16  # requests in flight that one process follows, as long as there are cores for it
COUNTERS = ("sglang:generation_tokens_total", "vllm:generation_tokens_total")
EVERY_VOCABULARY = range(128, 256)  # token ids that each has
POLL_S = 0.05
FORK = multiprocessing.get_context("fork")  # the import is not paid again


class Failed(Exception):
    """A point could not be measured."""


class TokenIds:
    """In the place of a tokenizer where there is none: a prompt is a list of ids, and no answer is counted anew."""

    vocab_size = len(EVERY_VOCABULARY)

    def __init__(self, seed):
        self.random = random.Random(seed)

    def num_special_tokens_to_add(self):
        return 0

    def decode(self, ids):
        return self.random.choices(EVERY_VOCABULARY, k=len(ids))

    def encode(self, text, **options):
        return []


@dataclass(frozen=True)
class Client:
    """One of the processes that a point is spread over."""

    process: BaseProcess
    link: Connection


def benchmark_module():
    """The installed SGLang's benchmark."""
    for name in MODULES:
        try:
            if find_spec(name) is not None:
                return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in ("sglang", *MODULES, "sglang.benchmark"):
                raise
    raise ModuleNotFoundError(f"no SGLang benchmark is installed (looked for {' and '.join(MODULES)})")


def run_as_command(module):
    """Do what `python -m MODULE` does, but in the imported module, where functions can be replaced."""
    if hasattr(module, "cli_main"):
        module.cli_main()
        return
    # Up to 0.5.12 the command line is read below `if __name__ == "__main__"`, the last statement.
    guarded = ast.parse(Path(module.__file__).read_text()).body[-1].body
    exec(compile(ast.Module(guarded, []), module.__file__, "exec"), vars(module))


def options(point, raw):
    """The benchmark's command line for one process."""
    choices = {
        "--backend": "sglang"
        if point["engine"] == "sglang"
        else "vllm",  # the latter is OpenAI's completions
        "--base-url": point["url"],
        "--model": point["model"],
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
    if point["tokenizer"]:
        choices["--tokenizer"] = point["tokenizer"]
    switches = ["--output-details", "--disable-tqdm"]
    if point["engine"] == "sglang":
        switches.append("--tokenize-prompt")
        if point["warmup_requests"]:
            switches.append("--flush-cache")
    return [str(part) for pair in choices.items() for part in pair] + switches


def split(point, cores):
    """The point's shares: half the cores at most are for the client, since the server may need the others."""
    wanted = math.ceil(point["concurrency"] / SLOTS_PER_CLIENT)
    clients = min(point["clients"] or min(wanted, max(1, cores // 2)), point["concurrency"])
    return [
        point
        | {
            "concurrency": share(point["concurrency"], clients, k),
            "num_prompts": share(point["num_prompts"], clients, k),
            "warmup_requests": point["warmup_requests"] if k == 0 else 0,
            "seed": (point["seed"] + 1_000_003 * k) % 2**32,  # else all would send the same prompts
        }
        for k in range(clients)
    ]


def share(total, parts, k):
    """The size of part `k` when `total` is dealt out."""
    return total // parts + (k < total % parts)


def run_client(module, point, raw, link):
    """One process's share: the benchmark, held before its first request, and its marks at start and end."""
    os.dup2(2, 1)
    marks = {}
    get_request, calculate_metrics = module.get_request, module.calculate_metrics

    async def get_request_together(*args, **kwargs):
        link.send({"waiting": True})
        link.recv()
        marks.update(started=time.perf_counter(), cpu=time.process_time())
        async for request in get_request(*args, **kwargs):
            yield request

    def calculate_metrics_at_end(*args, **kwargs):
        marks.update(ended=time.perf_counter(), cpu=time.process_time() - marks["cpu"])
        return calculate_metrics(*args, **kwargs)

    module.get_request, module.calculate_metrics = get_request_together, calculate_metrics_at_end
    if point["engine"] == "openai" and not point["tokenizer"]:
        module.get_tokenizer = lambda *args, **kwargs: TokenIds(point["seed"])
    sys.argv = [module.__name__, *options(point, raw)]
    try:
        run_as_command(module)
        answer = marks if "ended" in marks and raw.exists() else {"error": "the client wrote no record"}
    except SystemExit as stop:  # how the benchmark reports some of its failures
        answer = {"error": f"the client stopped: {stop.code}"}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    link.send(answer)


def start_client(module, point, raw):
    here, there = FORK.Pipe()
    process = FORK.Process(target=run_client, args=(module, point, raw, there))
    process.start()
    there.close()  # so that this end notices when the process is gone
    return Client(process, here)


def answers(clients, deadline):
    """The next message of each process."""
    found = {}
    while len(found) < len(clients):
        waiting = {client.link: client for client in clients if client.link not in found}
        ready = wait(waiting, max(0.0, deadline - time.monotonic()))
        if not ready:
            raise Failed("the client stopped: out of time")
        for link in ready:
            try:
                found[link] = link.recv()
            except EOFError:
                process = waiting[link].process
                process.join()
                raise Failed(f"the client ended with exit status {process.exitcode}") from None
            if "error" in found[link]:
                raise Failed(found[link]["error"])
    return [found[client.link] for client in clients]


def measure(module, point, folder):
    """Run one point; what its progress line says."""
    deadline = time.monotonic() + point["limit_s"]
    clients = []
    try:
        for k, one in enumerate(split(point, len(os.sched_getaffinity(0)))):
            clients.append(start_client(module, one, folder / f"{point['name']}-s{k}.jsonl"))
        answers(clients, deadline)
        before = tokens_generated(point["url"])
        for client in clients:
            client.link.send("go")
        marks = answers(clients, deadline)
        after = tokens_generated(point["url"])
    except Failed as failed:
        return {"point": point["name"], "error": str(failed)}
    finally:
        for client in clients:
            client.process.kill()
            client.process.join()
    return {
        "point": point["name"],
        "clients": len(clients),
        "seconds": max(one["ended"] for one in marks) - min(one["started"] for one in marks),
        "client_cpu": max(one["cpu"] / (one["ended"] - one["started"]) for one in marks),
        "server_tokens": None if before is None or after is None or after < before else after - before,
    }


def tokens_generated(url):
    """The server's own count of the tokens that it generated for finished requests; None where it tells none.

    A counter that was set back, as by a restart, tells nothing either: the caller sees it fall.
    """
    try:
        with build_opener(ProxyHandler({})).open(f"{url}/metrics", timeout=10) as answer:
            lines = answer.read().decode(errors="replace").splitlines()
        counts = [float(line.split()[-1]) for line in lines if line.partition("{")[0] in COUNTERS]
    except (OSError, HTTPException, ValueError):
        return None
    return sum(counts) if counts and math.isfinite(sum(counts)) else None


def next_point(path):
    """The point in a file that may not be there, or not whole, yet."""
    while True:
        try:
            return json.loads(path.read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            time.sleep(POLL_S)


def say(progress):
    print(f"\n{json.dumps(progress)}", flush=True)  # a line of its own, whatever was printed before


def main(argv):
    if len(argv) != 1:
        print("usage: bench.py FOLDER", file=sys.stderr)
        return 2
    folder, number = Path(argv[0]), 0
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    module = benchmark_module()
    say({"ready": True})
    while True:
        point = next_point(folder / f"{number}.json")
        say(measure(module, point, folder))
        number += 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
