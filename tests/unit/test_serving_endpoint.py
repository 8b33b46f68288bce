"""A server that is already running, told by its address; here a stub that answers as such servers do."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from workbook.errors import UsageError
from workbook.node.local import LocalConnection
from workbook.serving.endpoint import (
    Endpoint,
    check_lengths,
    check_tokenizer,
    checked_url,
    find_endpoint,
)
from workbook.types import Node

NODE = LocalConnection(Node(name="here"))


@contextmanager
def stub(models: Any, status: int = 200) -> Iterator[str]:
    """A server whose /v1/models says this; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/v1/models" else 404)
            self.end_headers()
            self.wfile.write(models if isinstance(models, bytes) else json.dumps(models).encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def serves(*names: str, context: int | None = None) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name, "max_model_len": context} for name in names]}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://host:8000", "http://host:8000"),
        ("https://host/", "https://host"),
        ("http://host:8000/v1", "http://host:8000"),
        ("http://[::1]:8000/v1/", "http://[::1]:8000"),
    ],
)
def test_an_address_is_kept_without_its_path(given: str, kept: str) -> None:
    assert checked_url(given) == kept


@pytest.mark.parametrize(
    "given",
    [
        "",
        "host:8000",
        "ftp://host",
        "http://",
        "http://host:port",
        "http://host:0",
        "http://[::1",
        "file:///x",
    ],
)
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(
        UsageError, match=r"is not the http\(s\) address of a server; write it as http://host:8000"
    ):
        checked_url(given)


@pytest.mark.parametrize("path", ["/v2", "/v1/models", "?x=1", "#x"])
def test_an_address_with_more_is_refused(path: str) -> None:
    with pytest.raises(UsageError, match="more than a host and a port"):
        checked_url(f"http://host:8000{path}")


def test_the_only_model_is_found_with_its_context() -> None:
    with stub(serves("org/model", context=4096)) as url:
        assert find_endpoint(NODE, f"{url}/v1") == Endpoint(url, "org/model", 4096)
        assert find_endpoint(NODE, url, "org/model").model == "org/model"


def test_one_of_several_models_has_to_be_named() -> None:
    with stub(serves("base", "adapter")) as url:
        with pytest.raises(
            UsageError, match=r"several models \(base, adapter\); choose one of them with --model"
        ):
            find_endpoint(NODE, url)
        assert find_endpoint(NODE, url, "adapter") == Endpoint(url, "adapter", None)
        with pytest.raises(UsageError, match=r"serves no model 'adaptor'; did you mean adapter\?"):
            find_endpoint(NODE, url, "adaptor")


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (b"<html>", 200, "is not that of an OpenAI-compatible server"),
        ({"models": []}, 200, "is not that of an OpenAI-compatible server"),
        ([1], 200, "is not that of an OpenAI-compatible server"),
        (serves("m"), 401, "401 Unauthorized"),
        ({"data": []}, 200, "serves no model"),
        (b'{"data": [{"id": "a\\u001b[2Jb"}, {"id": "c"}]}', 200, r"several models \(ab, c\)"),
        (b'{"data": [{"id": "\\ud800"}]}', 200, "is not that of an OpenAI-compatible server"),
        (b"[" * 100_000, 200, "is not that of an OpenAI-compatible server"),
        (b" " * 11 * 2**20 + b"{}", 200, "is not that of an OpenAI-compatible server"),
    ],
)
def test_another_answer_is_told(answer: Any, status: int, said: str) -> None:
    with stub(answer, status) as url, pytest.raises(UsageError, match=said):
        find_endpoint(NODE, url)


def test_an_address_where_nothing_listens_is_told() -> None:
    with stub({}) as url:
        pass  # from here on nothing listens there
    with pytest.raises(UsageError, match=f"{url} gives node here no answer: .*Connection refused"):
        find_endpoint(NODE, url)


def test_requests_that_do_not_fit_the_context_are_refused() -> None:
    check_lengths(Endpoint("", "m", 1536), 1024, 512)
    check_lengths(Endpoint("", "m", None), 10**9, 512)
    with pytest.raises(
        UsageError, match="1024 input and 513 output tokens do not fit the model's context of 1536"
    ):
        check_lengths(Endpoint("", "m", 1536), 1024, 513)


def test_a_tokenizer_is_a_folder_of_the_node(tmp_path: Path) -> None:
    assert check_tokenizer(NODE, str(tmp_path)) == str(tmp_path)
    with pytest.raises(UsageError, match=r"There is no folder .*/nowhere on node here for --tokenizer"):
        check_tokenizer(NODE, str(tmp_path / "nowhere"))
