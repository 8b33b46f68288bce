"""How the client deals out a point, and what it reads of the server's own counters."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbook.probes.bench import COUNTERS, split, tokens_generated

small = st.integers(1, 3000)


def asked(concurrency: int, requests: int, clients: int | None = None, seed: int = 7) -> dict[str, Any]:
    return {
        "concurrency": concurrency, "num_prompts": requests, "warmup_requests": 4, "seed": seed, "clients": clients,
    }  # fmt: skip


@given(small, small, st.one_of(st.none(), st.integers(1, 64)), st.integers(1, 256), st.integers(0, 2**31))
def test_shares_add_up_to_the_point(
    concurrency: int, more: int, clients: int | None, cores: int, seed: int
) -> None:
    point = asked(concurrency, concurrency + more, clients, seed)
    shares = split(point, cores)
    for name in ("concurrency", "num_prompts", "warmup_requests"):
        assert sum(one[name] for one in shares) == point[name]
    assert all(1 <= one["concurrency"] <= one["num_prompts"] for one in shares)
    assert max(one["num_prompts"] for one in shares) - min(one["num_prompts"] for one in shares) <= 1
    assert shares[0]["warmup_requests"] == 4 and shares[0]["seed"] == seed
    assert len({one["seed"] for one in shares}) == len(shares)
    assert all(0 <= one["seed"] < 2**32 for one in shares)


@pytest.mark.parametrize(
    ("concurrency", "cores", "clients"), [(1, 16, 1), (16, 16, 1), (17, 16, 2), (256, 16, 8), (256, 1, 1)]
)
def test_a_client_a_sixteen_requests_in_flight_but_half_the_cores_at_most(
    concurrency: int, cores: int, clients: int
) -> None:
    assert len(split(asked(concurrency, 4096), cores)) == clients


@contextmanager
def metrics(text: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" and text else 404)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("counter", COUNTERS)
def test_a_counter_is_summed_over_its_labels(counter: str) -> None:
    text = (
        f"# HELP {counter} Number of generation tokens processed.\n# TYPE {counter} counter\n"
        f'{counter}{{is_streaming="True",model_name="a b"}} 500.0\n{counter}{{is_streaming="False"}} 12.0\n'
        f"{counter.removesuffix('_total')}_created{{}} 1.7e9\nsglang:prompt_tokens_total{{}} 4000.0\n"
    )
    with metrics(text) as url:
        assert tokens_generated(url) == 512.0


@pytest.mark.parametrize(
    "text", ["", "up 1.0\n", *(f"{COUNTERS[0]}{{}} {count}\n" for count in ("many", "NaN", "+Inf"))]
)
def test_a_server_without_such_a_counter_tells_nothing(text: str) -> None:
    with metrics(text) as url:
        assert tokens_generated(url) is None


def test_a_server_that_is_gone_tells_nothing() -> None:
    with metrics("") as url:
        pass
    assert tokens_generated(url) is None
