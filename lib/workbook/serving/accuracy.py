"""One pass of the accuracy gate: the same prompts, at temperature 0, to a server of a node."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from packaging.version import Version

from workbook.errors import UsageError, WorkbookError
from workbook.node.base import NodeConnection
from workbook.serving.agreement import Answers, read_answers
from workbook.serving.log import printable
from workbook.types import CaptureMode

ANY_VOCABULARY = 256
"""Token ids below this are in every vocabulary."""
GRACE_S = 30.0
LOGPROBS_LEAVE_GRAPH = Version("0.5.16")


def ask(
    node: NodeConnection,
    url: str,
    *,
    name: str,
    raw: Path,
    prompts: int | Sequence[str] = 256,
    input_tokens: int = 128,
    output_tokens: int = 32,
    concurrency: int = 16,
    seed: int = 0,
    order: int = 0,
    vocabulary: int = ANY_VOCABULARY,
    logprobs: bool = True,
    api: Literal["sglang", "openai"] = "sglang",
    model: str = "default",
    limit_s: float = 900.0,
    env: Mapping[str, str] | None = None,
    on_progress: Callable[[str], None] = lambda line: None,
) -> Answers:
    """Ask every prompt once, with the server's prefix cache emptied before, and keep the answers.

    Args:
        node: where the client runs.
        url: the server's address, as the node sees it.
        name: which pass this is, such as "eager, pass 2".
        raw: a new file for the answers, a JSON line each.
        prompts: how many prompts of random token ids, or the texts themselves.
        input_tokens: length of a random prompt.
        output_tokens: length of every answer; the end-of-text token is ignored.
        concurrency: requests in flight.
        seed: of the random prompts; passes that are compared have the same.
        order: shuffles the order in which they are sent. Give each pass its own: what depends on how requests are
            batched then shows as noise of the baseline, as it should.
        vocabulary: random ids are below this.
        logprobs: ask for log-probabilities, without which little can be told (see `graph_needs_no_logprobs`).
        api: SGLang's own interface, or the OpenAI-compatible one at `url`/v1/completions.
        model: the name that an OpenAI-compatible server expects.
        limit_s: seconds after which the pass is given up.
        env: added to the client's environment.
        on_progress: called about once a second with how many prompts are answered.

    Raises:
        UsageError: there is nothing to ask, or `raw` is there already.
        WorkbookError: the server did not answer every prompt in time.
    """
    texts = None if isinstance(prompts, int) else list(prompts)
    count = prompts if isinstance(prompts, int) else len(prompts)
    if min(count, input_tokens, output_tokens, concurrency, vocabulary) < 1:
        raise UsageError(
            f"There is nothing to ask: {count} prompts of {input_tokens} tokens (ids below {vocabulary}), "
            f"{output_tokens} to answer, {concurrency} at once;",
            "give 1 or more of each.",
        )
    if raw.exists():
        raise UsageError(f"{raw} has answers already;", "they are never overwritten.")
    asked: dict[str, Any] = {
        "url": url.rstrip("/"), "api": api, "model": model, "prompts": count, "input_tokens": input_tokens,
        "vocabulary": vocabulary, "seed": seed, "texts": texts, "output_tokens": output_tokens,
        "concurrency": concurrency, "order": order, "logprobs": logprobs, "limit_s": limit_s,
        "raw": str(node.place(raw)),
    }  # fmt: skip
    spec = raw.with_name(f"{raw.stem}-spec.json")
    raw.parent.mkdir(parents=True, exist_ok=True)
    spec.write_text(json.dumps(asked, indent=2) + "\n")
    node.put(spec, node.place(spec))
    done = node.run(
        [node.python, "-P", str(node.probes / "answers.py"), str(node.place(spec))],
        timeout_s=limit_s + GRACE_S,
        env=env,
        on_stderr=lambda line: on_progress(printable(line)),
    )
    if done.timed_out or done.returncode != 0:
        last = printable(done.stderr.strip().rpartition("\n")[2]) or f"exit status {done.returncode}"
        why = f"it took longer than {limit_s:g} s" if done.timed_out else last
        raise WorkbookError(
            f"The server did not answer the prompts of {name}: {why}.", "Its own log may say more."
        )
    node.get(node.place(raw), raw)
    said = json.loads(done.stdout.strip().rpartition("\n")[2])
    return read_answers(raw, name, prompts=count, output_tokens=output_tokens, flushed=said["flushed"])


def graph_needs_no_logprobs(sglang_version: str, mode: CaptureMode) -> bool:
    """Whether a prefill that returns log-probabilities would not be run in the graph that is to be judged.

    So it is for the piecewise graphs of SGLang 0.5.16 and later, whose runner refuses such batches. The gate then has
    to go by tokens: `ask(..., logprobs=False)`, for the baseline as well.
    """
    return mode is CaptureMode.PIECEWISE and Version(sglang_version) >= LOGPROBS_LEAVE_GRAPH
