"""An OpenAI-compatible server that is already running, whichever engine it is."""

import json
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from workbook.errors import UsageError, WorkbookError, nearest
from workbook.node.base import NodeConnection
from workbook.serving.log import printable

SHOWN_MODELS = 5


@dataclass(frozen=True)
class Endpoint:
    """A server's address, the model to ask it for, and that model's longest context in tokens, where it tells it."""

    url: str
    model: str
    context: int | None


def checked_url(text: str) -> str:
    """The server's address without a path; `/v1` at its end is taken off.

    Raises:
        UsageError: it is not an http(s) address of a host.
    """
    example = "write it as http://host:8000."
    try:
        parts = urlsplit(text)
        named = parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        parts, named = None, None
    if parts is None or not named or parts.scheme not in ("http", "https"):
        raise UsageError(f"--url {printable(text)!r} is not the http(s) address of a server;", example)
    if parts.query or parts.fragment or parts.username or parts.path.rstrip("/") not in ("", "/v1"):
        raise UsageError(f"--url {printable(text)!r} has more than a host and a port;", example)
    return f"{parts.scheme}://{parts.netloc}"


def find_endpoint(node: NodeConnection, url: str, model: str | None = None) -> Endpoint:
    """Ask the server which models it serves.

    Args:
        node: asks, since it is the one to measure.
        url: as the node sees it.
        model: the one that is wanted; may be left out where there is only one.

    Raises:
        UsageError: nothing answers there, or not as such a server does, or it has no such model.
        WorkbookError: the node's Python does not run.
    """
    url = checked_url(url)
    done = node.run([node.python, "-P", str(node.probes / "endpoint.py"), url], timeout_s=60)
    try:
        answer = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError as error:
        last = printable(done.stderr.strip().rpartition("\n")[2]) or f"exit status {done.returncode}"
        raise WorkbookError(f"Node {node.node.name} could not ask {url}: {last}.") from error
    if "error" in answer:
        raise UsageError(
            f"{url} gives node {node.node.name} no answer: {printable(answer['error'])}.",
            "Start the server, or mend the address; it is the one that the node sees.",
        )
    contexts = {one["id"]: one["max_model_len"] for one in answer["models"]}
    shown = printable(", ".join(list(contexts)[:SHOWN_MODELS]))
    if not contexts:
        raise UsageError(f"{url} serves no model.")
    if model is None:
        if len(contexts) > 1:
            raise UsageError(f"{url} serves several models ({shown});", "choose one of them with --model.")
        [model] = contexts
    elif model not in contexts:
        raise UsageError(
            f"{url} serves no model {printable(model)!r};", nearest(model, contexts, f"it serves {shown}.")
        )
    context = contexts[model]
    return Endpoint(url, model, context if type(context) is int else None)  # true is no length


def check_lengths(endpoint: Endpoint, input_tokens: int, output_tokens: int) -> None:
    """Nothing, if a request of these lengths fits the model's context.

    Raises:
        UsageError: it does not.
    """
    if endpoint.context is not None and input_tokens + output_tokens > endpoint.context:
        raise UsageError(
            f"{input_tokens} input and {output_tokens} output tokens do not fit the model's context of "
            f"{endpoint.context};",
            "give shorter --input-tokens or --output-tokens.",
        )


def check_tokenizer(node: NodeConnection, folder: str) -> str:
    """The folder's path on the node.

    Raises:
        UsageError: it is not there.
    """
    path = Path(folder).absolute() if node.node.kind == "local" else Path(folder)
    if not node.exists(path):
        raise UsageError(
            f"There is no folder {path} on node {node.node.name} for --tokenizer;",
            "without --tokenizer prompts are sent as token ids.",
        )
    return str(path)
