"""One pass of the gate against a stub of a server that answers as SGLang, or as an OpenAI-compatible one, does."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from workbook.errors import UsageError, WorkbookError
from workbook.node.local import LocalConnection
from workbook.serving.accuracy import ask, graph_needs_no_logprobs
from workbook.serving.agreement import Answers, agreement, read_answers
from workbook.types import CaptureMode, Node

NODE = LocalConnection(Node(name="here"))


@dataclass
class StubServer:
    """What it was asked, in order, and how it misbehaves."""

    url: str = ""
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    mode: str = ""
    busy: int = 0

    def flush(self) -> tuple[int, Any]:
        if self.mode == "no flush":
            return 404, {"error": "no such thing"}
        self.busy -= 1
        return (400, {"error": "running"}) if self.busy >= 0 else (200, {})

    def generate(self, body: dict[str, Any]) -> tuple[int, Any]:
        prompt, length = (
            body.get("input_ids") or [len(body["text"])],
            body["sampling_params"]["max_new_tokens"],
        )
        if self.mode == "refuses":
            return 400, {"error": {"message": "\x1b[31mthe prompt is too long"}}
        if self.mode == "hangs":
            time.sleep(3)
        tokens = [(sum(prompt) + step) % 50 for step in range(length)]
        numbers = [float("nan") if self.mode == "nan" else -0.5 - step / 100 for step in range(length)]
        meta: dict[str, Any] = {"prompt_tokens": len(prompt)}
        if body.get("return_logprob"):
            pairs = list(zip(numbers, tokens, strict=True))
            meta["output_token_logprobs"] = [[value, token, None] for value, token in pairs]
            meta["output_top_logprobs"] = [[[v, t, None], [v - 1, t + 1, None]] for v, t in pairs]
        return 200, {"text": "", "output_ids": tokens, "meta_info": meta}

    def complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        tokens = [f"w{(sum(body['prompt']) + step) % 50}" for step in range(body["max_tokens"])]
        logprobs = {
            "tokens": tokens,
            "token_logprobs": [-0.5] * len(tokens),
            "top_logprobs": [{token: -0.5, "x": -2.0} for token in tokens],
        }
        return 200, {
            "choices": [{"text": "".join(tokens), "logprobs": None if self.mode == "text" else logprobs}]
        }


@pytest.fixture
def stub() -> Iterator[StubServer]:
    state = StubServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            state.asked.append((self.path, body))
            answers = {"/flush_cache": lambda _: state.flush(), "/generate": state.generate}
            status, answer = answers.get(self.path, state.complete)(body)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    server.server_close()


def asked(stub: StubServer, raw: Path, **changes: Any) -> Answers:
    how: dict[str, Any] = {
        "name": "a", "prompts": 6, "input_tokens": 5, "output_tokens": 4, "concurrency": 3, "limit_s": 60,
    }  # fmt: skip
    return ask(NODE, stub.url, raw=raw, **(how | changes))


def test_every_prompt_is_answered_in_its_place_whatever_the_order(stub: StubServer, tmp_path: Path) -> None:
    told: list[str] = []
    one = asked(stub, tmp_path / "one.jsonl", on_progress=told.append)
    two = asked(stub, tmp_path / "two.jsonl", order=1)
    assert told[-1] == "6 of 6 prompts answered"
    assert one.flushed and len(one.answers) == 6 and {len(answer.tokens) for answer in one.answers} == {4}
    assert one.answers == two.answers and agreement(one, two).equal_share == 1.0
    first, second = (
        [body["input_ids"] for path, body in part if path == "/generate"]
        for part in (stub.asked[:7], stub.asked[7:])
    )
    assert first != second and sorted(first) == sorted(second)
    assert [path for path, _ in stub.asked].index("/flush_cache") == 0
    answer = one.answers[0]
    assert answer.logprobs == (-0.5, -0.51, -0.52, -0.53)
    assert answer.preference(0, answer.tokens[0] + 1) == pytest.approx(1.0)  # type: ignore[operator]
    assert read_answers(tmp_path / "one.jsonl", "a", prompts=6, output_tokens=4) == one
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "one-spec.json", "one.jsonl", "two-spec.json", "two.jsonl",
    ]  # fmt: skip


def test_logprobs_are_asked_for_in_the_way_that_keeps_the_piecewise_graph(
    stub: StubServer, tmp_path: Path
) -> None:
    asked(stub, tmp_path / "ids.jsonl")
    asked(stub, tmp_path / "texts.jsonl", prompts=["one text", "another text"])
    asked(stub, tmp_path / "tokens.jsonl", logprobs=False)
    bodies = [body for path, body in stub.asked if path == "/generate"]
    ids, lengths, texts, tokens = bodies[:6], bodies[6:8], bodies[8:10], bodies[10:]
    assert {body["logprob_start_len"] for body in ids} == {5}
    assert {body["sampling_params"]["max_new_tokens"] for body in lengths} == {1}
    assert {(body["text"], body["logprob_start_len"]) for body in texts} == {
        ("one text", 1),
        ("another text", 1),
    }
    assert not any("return_logprob" in body for body in tokens)
    assert all(body["sampling_params"]["temperature"] == 0 for body in bodies)
    assert all(body["sampling_params"]["ignore_eos"] for body in ids + texts + tokens)


def test_the_seed_makes_the_prompts(stub: StubServer, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        asked(stub, tmp_path / f"{name}.jsonl", seed=seed, vocabulary=40)
    a, b, c = ([body["input_ids"] for _, body in stub.asked if body][i : i + 6] for i in (0, 6, 12))
    assert sorted(a) == sorted(b) != sorted(c)
    assert 0 <= min(map(min, a)) <= max(map(max, a)) < 40


def test_an_openai_compatible_server_tells_tokens_as_texts(stub: StubServer, tmp_path: Path) -> None:
    answers = asked(stub, tmp_path / "a.jsonl", api="openai", model="org/model")
    assert all(str(token).startswith("w") for answer in answers.answers for token in answer.tokens)
    assert answers.answers[0].preference(0, "x") == 1.5
    assert {body["model"] for path, body in stub.asked if path == "/v1/completions"} == {"org/model"}
    stub.mode = "text"
    with pytest.raises(WorkbookError, match="gave no tokens with its text"):
        asked(stub, tmp_path / "b.jsonl", api="openai")


def test_numbers_that_are_none_are_kept_as_missing(stub: StubServer, tmp_path: Path) -> None:
    stub.mode = "nan"
    assert asked(stub, tmp_path / "a.jsonl").answers[0].logprobs == (None,) * 4


def test_a_server_that_is_still_busy_is_waited_for_and_one_that_cannot_flush_is_noted(
    stub: StubServer, tmp_path: Path
) -> None:
    stub.busy = 2
    assert asked(stub, tmp_path / "a.jsonl").flushed
    assert [path for path, _ in stub.asked][:4] == ["/flush_cache"] * 3 + ["/generate"]
    stub.mode = "no flush"
    assert not asked(stub, tmp_path / "b.jsonl").flushed


def test_a_refusal_is_quoted_and_leaves_no_answers(stub: StubServer, tmp_path: Path) -> None:
    stub.mode = "refuses"
    with pytest.raises(WorkbookError, match=r"answered 400: .*the prompt is too long") as caught:
        asked(stub, tmp_path / "a.jsonl")
    assert "\x1b" not in str(caught.value) and not (tmp_path / "a.jsonl").exists()


def test_a_server_that_hangs_is_given_up(stub: StubServer, tmp_path: Path) -> None:
    stub.mode = "hangs"
    with pytest.raises(WorkbookError, match="did not answer in time"):
        asked(stub, tmp_path / "a.jsonl", limit_s=1, prompts=2)
    assert not (tmp_path / "a.jsonl").exists()


def test_no_server_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(WorkbookError, match="refused") as caught:
        ask(NODE, f"http://127.0.0.1:{NODE.free_port()}", name="a", raw=tmp_path / "a.jsonl", prompts=2)
    assert "\n" not in str(caught.value)


def test_nothing_to_ask_and_answers_that_are_there_are_refused(stub: StubServer, tmp_path: Path) -> None:
    for nothing in ({"prompts": 0}, {"prompts": []}, {"concurrency": 0}, {"output_tokens": -1}):
        with pytest.raises(UsageError, match="nothing to ask"):
            asked(stub, tmp_path / "a.jsonl", **nothing)
    asked(stub, tmp_path / "a.jsonl")
    with pytest.raises(UsageError, match="never overwritten"):
        asked(stub, tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not json\n", "does not hold answers"),
        ('{"prompt": 0}\n', "logprobs"),
        ("", "0 answers to 1 prompts"),
    ],
)
def test_a_damaged_raw_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    raw = tmp_path / "a.jsonl"
    raw.write_text(text)
    with pytest.raises(WorkbookError, match=words) as caught:
        read_answers(raw, "a", prompts=1, output_tokens=4)
    assert str(raw) in str(caught.value)


def test_which_graphs_take_no_logprobs() -> None:
    assert graph_needs_no_logprobs("0.5.16", CaptureMode.PIECEWISE)
    assert not graph_needs_no_logprobs("0.5.12", CaptureMode.PIECEWISE)
    assert not graph_needs_no_logprobs("0.5.23", CaptureMode.BREAKABLE)
