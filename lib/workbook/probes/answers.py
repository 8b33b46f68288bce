"""Ask a server the same prompts at temperature 0, and keep what it answered, token by token.

    python answers.py SPEC.json

SPEC.json: {"url", "api": "sglang" | "openai", "model", "prompts", "input_tokens", "vocabulary", "seed", "texts",
"output_tokens", "concurrency", "order", "logprobs", "limit_s", "raw"}. Prompts are random token ids by `seed`, or the
`texts`; `order` shuffles them, so that passes batch them differently. RAW gets a JSON line for each prompt, {"prompt",
"tokens", "logprobs", "tops"}, in the order of the prompts, and is written whole or not at all: `tops` are the likeliest
tokens at each position, [token, log-probability]; a number that is missing or not finite is null. Progress goes to
standard error; the last line of standard output is {"flushed"}: whether the server could empty its prefix cache before.
Standard library only.
"""

import http.client
import json
import math
import os
import random
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
TOPS = 10
OPENAI_TOPS = 5  # the most that OpenAI's own interface allows
FLUSH_TRIES = 40  # half a second apart: requests that just ended still count as running
SAID_EVERY_S = 1.0


class Failed(Exception):
    """The server did not do what was asked; the message says what."""


def ask(url: str, body: dict, deadline: float) -> dict:
    """The JSON that a POST is answered with."""
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with OPENER.open(request, timeout=max(deadline - time.monotonic(), 0.1)) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        said = error.read(2000).decode(errors="replace").strip()
        raise Failed(f"{url} answered {error.code}: {said}") from error
    except TimeoutError as error:
        raise Failed(f"{url} did not answer in time") from error
    except (OSError, http.client.HTTPException) as error:
        raise Failed(f"{url} broke off: {getattr(error, 'reason', error) or type(error).__name__}") from error
    except ValueError as error:
        raise Failed(f"{url} did not answer with JSON") from error


def flush(url: str) -> bool:
    """Have the server forget prefixes, else a pass repeats what an earlier one computed; whether it can."""
    refused = ""
    for _ in range(FLUSH_TRIES):
        try:
            with OPENER.open(urllib.request.Request(f"{url}/flush_cache", method="POST"), timeout=60):
                return True
        except urllib.error.HTTPError as error:
            if error.code != 400:  # which is how SGLang says that requests are running
                return False
            refused = error.read(500).decode(errors="replace").strip()
            time.sleep(0.5)
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"{url}/flush_cache does not answer: {error}") from error
    raise Failed(f"{url}/flush_cache refuses, since other requests are running: {refused}")


def finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def ranked(pairs: Iterable[tuple[object, object]]) -> list[list]:
    """Tokens with their log-probabilities, those left out that are no numbers."""
    return [
        [token, value]
        for token, value in ((token, finite(value)) for token, value in pairs)
        if value is not None
    ]


def ask_sglang(spec: dict, prompt: list | str, input_tokens: int, deadline: float) -> dict:
    """One answer of SGLang's own interface.

    `logprob_start_len` is the prompt's length: with SGLang's default up to 0.5.9, one less, a prefill that returns
    log-probabilities is never run in a piecewise graph, so that the graph would not be what is compared.
    """
    body = {
        "text" if isinstance(prompt, str) else "input_ids": prompt,
        "sampling_params": {"temperature": 0, "max_new_tokens": spec["output_tokens"], "ignore_eos": True},
    }
    if spec["logprobs"]:
        body |= {"return_logprob": True, "logprob_start_len": input_tokens, "top_logprobs_num": TOPS}
    answer = ask(f"{spec['url']}/generate", body, deadline)
    if not isinstance(answer.get("output_ids"), list):
        raise Failed(f"{spec['url']}/generate gave no output_ids; is it SGLang 0.5.9 or later?")
    found = {"tokens": answer["output_ids"], "logprobs": None, "tops": None}
    if spec["logprobs"]:
        chosen = answer["meta_info"].get("output_token_logprobs") or []
        found["logprobs"] = [finite(value) for value, *_ in chosen]
        best = answer["meta_info"].get("output_top_logprobs") or []
        found["tops"] = [ranked((token, value) for value, token, *_ in top or ()) for top in best]
    return found


def ask_openai(spec: dict, prompt: list | str, _input_tokens: int, deadline: float) -> dict:
    """One answer of an OpenAI-compatible server, whose tokens are texts; without them there is nothing to compare."""
    body = {
        "model": spec["model"], "prompt": prompt, "max_tokens": spec["output_tokens"], "temperature": 0,
        "logprobs": OPENAI_TOPS, "ignore_eos": True, "return_tokens_as_token_ids": True,
    }  # fmt: skip
    answer = ask(f"{spec['url']}/v1/completions", body, deadline)
    try:
        details = answer["choices"][0].get("logprobs")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise Failed(f"{spec['url']}/v1/completions gave no choices") from error
    if not details or not details.get("tokens"):
        raise Failed(
            f"{spec['url']}/v1/completions gave no tokens with its text (asked with logprobs: {OPENAI_TOPS})"
        )
    top = details.get("top_logprobs")
    return {
        "tokens": details["tokens"],
        "logprobs": [finite(value) for value in details.get("token_logprobs") or ()] or None,
        "tops": [ranked((one or {}).items()) for one in top] if top else None,
    }


def prompts(spec: dict) -> list:
    """The prompts: texts, or random token ids that depend on the seed alone."""
    if spec["texts"]:
        return spec["texts"]
    ids = random.Random(spec["seed"])
    return [
        [ids.randrange(spec["vocabulary"]) for _ in range(spec["input_tokens"])]
        for _ in range(spec["prompts"])
    ]


def each(spec: dict, deadline: float, work: Callable[[int], object]) -> Iterator[object]:
    """`work` for each prompt's number, so many at once, in a shuffled order; results as they come."""
    numbers = list(range(len(spec["texts"] or range(spec["prompts"]))))
    random.Random(spec["order"]).shuffle(numbers)
    pool = ThreadPoolExecutor(spec["concurrency"])
    try:
        yield from (done.result() for done in as_completed([pool.submit(work, number) for number in numbers]))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def count_tokens(spec: dict, asked: list, deadline: float) -> list[int]:
    """The lengths of the prompts in tokens; for a text, as the server counts them."""
    if not spec["texts"] or spec["api"] != "sglang":
        return [len(prompt) for prompt in asked]

    def count(number: int) -> tuple[int, int]:
        body = {"text": asked[number], "sampling_params": {"temperature": 0, "max_new_tokens": 1}}
        return number, ask(f"{spec['url']}/generate", body, deadline)["meta_info"]["prompt_tokens"]

    return [tokens for _, tokens in sorted(each(spec, deadline, count))]


def run(spec: dict) -> bool:
    """One pass over all prompts, written to the raw file; whether the prefix cache was emptied before."""
    deadline = time.monotonic() + spec["limit_s"]
    asked, one = prompts(spec), ask_sglang if spec["api"] == "sglang" else ask_openai
    lengths = count_tokens(spec, asked, deadline)
    flushed = flush(spec["url"])
    answers: dict[int, dict] = {}
    said = time.monotonic()

    def answer(number: int) -> tuple[int, dict]:
        return number, one(spec, asked[number], lengths[number], deadline)

    for number, found in each(spec, deadline, answer):
        answers[number] = found
        if time.monotonic() - said > SAID_EVERY_S or len(answers) == len(asked):
            said = time.monotonic()
            print(f"{len(answers)} of {len(asked)} prompts answered", file=sys.stderr, flush=True)
    lines = [
        json.dumps({"prompt": number, **answers[number]}, allow_nan=False) for number in range(len(asked))
    ]
    raw = Path(spec["raw"])
    beside = raw.with_name(f".{raw.name}.part")
    beside.write_text("\n".join(lines) + "\n")
    beside.replace(raw)
    return flushed


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        print("usage: answers.py SPEC.json", file=sys.stderr)
        return 2
    spec = json.loads(Path(argv[0]).read_text())
    try:
        print(json.dumps({"flushed": run(spec)}), flush=True)
    except Failed as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)  # at once: requests in flight would be waited for
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
