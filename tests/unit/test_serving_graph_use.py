"""What of a server's batches ran in a graph, by its log."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from workbook.serving.graph_use import shares, size

# as SGLang 0.5.12 wrote them on one H200, where 1,024 requests were more than the largest captured size
DECODE = "2026-11-30T17:33:48.453Z [2026-11-30 17:33:48] Decode batch, #running-req: 1024, #token: 141829, token usage: 0.43, cuda graph: {}, gen throughput (token/s): 8092.79, #queue-req: 0\n"  # noqa: E501
PREFILL = "2026-11-30T18:11:05.040Z [2026-11-30 18:11:05] Prefill batch, #new-seq: 1, #new-token: 256, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0, cuda graph: {}, input throughput (token/s): 0.00\n"  # noqa: E501


def test_a_log_that_is_not_there_tells_nothing(tmp_path: Path) -> None:
    nothing = {"prefill_in_graph": None, "decode_in_graph": None}
    assert shares(None, size(None)) == nothing
    assert shares(tmp_path / "log", size(tmp_path / "log")) == nothing


@given(st.lists(st.booleans()), st.lists(st.booleans()), st.lists(st.booleans()))
def test_only_what_was_written_after_the_beginning_counts(
    tmp_path_factory, before: list[bool], prefill: list[bool], decode: list[bool]
) -> None:
    log = tmp_path_factory.mktemp("log") / "log"
    log.write_text("".join(map(DECODE.format, before)))
    begin = size(log)
    with log.open("a") as more:
        more.write(
            "".join(
                [
                    *map(PREFILL.format, prefill),
                    "Decode batch, without the word\n",
                    *map(DECODE.format, decode),
                ]
            )
        )
    assert shares(log, begin) == {
        "prefill_in_graph": sum(prefill) / len(prefill) if prefill else None,
        "decode_in_graph": sum(decode) / len(decode) if decode else None,
    }


def test_a_hostile_log_is_read_without_harm(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(
        b"Decode batch " * 200_000 + b"\xff\x00graph: True\n" + b"Prefill batch, cuda graph: Maybe\n"
    )
    assert shares(log, 0)["prefill_in_graph"] is None
