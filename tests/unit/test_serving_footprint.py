"""The proof that nothing is left of a server: its port, its processes, the memory of its GPUs."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from workbook.errors import UsageError, WorkbookError
from workbook.node.local import LocalConnection
from workbook.serving import footprint
from workbook.serving.checks import usable_gpus
from workbook.serving.footprint import Footprint, left_behind, take
from workbook.types import LaunchProfile, Node

TAG = "1f0e"
Gpus = Callable[..., LocalConnection]


@pytest.fixture
def node() -> LocalConnection:
    return LocalConnection(Node(name="here"))


@pytest.fixture
def gpus(tmp_path: Path) -> Gpus:
    """A node with a stub of nvidia-smi, which prints what it is given; each line of a file, one call after another."""

    def make(*said: str) -> LocalConnection:
        for number, text in enumerate(said):
            (tmp_path / f"said-{number}").write_text(text)
        stub = tmp_path / "nvidia-smi"
        stub.write_text(
            f'#!/bin/sh\ncd "{tmp_path}"\nn=$(cat calls 2>/dev/null || echo 0)\necho $((n + 1)) > calls\n'
            f"[ $n -lt {len(said)} ] || n={len(said) - 1}\ncat said-$n\n"
        )
        stub.chmod(0o755)
        return LocalConnection(Node(name="here", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}))

    return make


def test_a_process_with_the_tag_is_found_whatever_its_name(node: LocalConnection) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env=os.environ | {footprint.TAG: TAG},
        start_new_session=True,
    ) as left:
        port = node.free_port()
        before = Footprint(True, (), {})
        assert left_behind(node, port, TAG, before, []) == (
            f"process {left.pid} {Path(sys.executable).name}",
        )
        assert left_behind(node, port, "1f0", before, []) == ()
        left.communicate(b"\n")
    assert left_behind(node, port, TAG, before, []) == ()


def test_a_port_counts_if_it_was_free_before(node: LocalConnection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert left_behind(node, port, TAG, Footprint(True, (), {}), []) == (f"port {port} is in use",)
        assert left_behind(node, port, TAG, Footprint(False, (), {}), []) == ()
    assert take(node, port, TAG).port_free


def test_a_port_that_a_connection_has_just_left_is_free(node: LocalConnection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            listener.accept()[0].close()  # this end closes first, and waits
    assert take(node, port, TAG).port_free


def test_memory_that_comes_back_late_is_not_left(gpus: Gpus) -> None:
    node = gpus("0, 10\n1, 500\n", "0, 90000\n1, 500\n", "0, 12\n1, 90000\n")
    port = node.free_port()
    before = take(node, port, TAG)
    assert before.gpu_gb == {0: pytest.approx(0.01049, rel=0.01), 1: pytest.approx(0.524, rel=0.01)}
    assert left_behind(node, port, TAG, before, [0]) == ()  # and GPU 1 is not its own


def test_memory_that_does_not_come_back_is_named(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "SETTLE_S", 1.0)
    node = gpus("0, 10\n1, [N/A]\n", "0, 1010\n1, [N/A]\n")
    port = node.free_port()
    [left] = left_behind(node, port, TAG, take(node, port, TAG), [0, 1])
    assert left.startswith("GPU 0 has 1.0 GB more in use than before")


def test_a_node_that_does_not_answer_proves_nothing(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho no such machine >&2; exit 255\n")
    script.chmod(0o755)
    node = LocalConnection(Node(name="away", python=str(script)))
    with pytest.raises(WorkbookError, match="Node away does not tell its ports and GPUs: no such machine"):
        take(node, 1, TAG)
    [left] = left_behind(node, 1, TAG, Footprint(True, (), {}), [])
    assert left.startswith("it could not be found out what")


def profile(**changes: object) -> LaunchProfile:
    base = {
        "name": "p",
        "description": "",
        "model": "m",
        "concurrencies": (1,),
        "input_tokens": 1,
        "output_tokens": 1,
    }
    return LaunchProfile.model_validate(base | changes)


@pytest.mark.parametrize(
    ("node", "env", "tp", "found"),
    [
        ({}, {}, 2, [0, 1]),
        ({"gpus": [2, 3]}, {}, 2, [2, 3]),
        ({}, {"CUDA_VISIBLE_DEVICES": "3,1"}, 2, [3, 1]),
        ({"env": {"CUDA_VISIBLE_DEVICES": "1"}}, {}, 1, [1]),
        ({"gpus": [2, 3]}, {}, 3, "wants 3 GPUs .* has 2 GPUs to use"),
        ({}, {"CUDA_VISIBLE_DEVICES": "7"}, 1, "wants 1 GPU .* has no GPU"),
        ({}, {}, 8, "wants 8 GPUs .* has 4 GPUs to use"),
    ],
)
def test_the_gpus_are_those_that_the_server_may_use(
    node: dict[str, object], env: dict[str, str], tp: int, found: list[int] | str
) -> None:
    there = LocalConnection(Node.model_validate({"name": "here"} | node))
    if isinstance(found, str):
        with pytest.raises(UsageError, match=found):
            usable_gpus(there, profile(), tp, [0, 1, 2, 3], env)
    else:
        assert usable_gpus(there, profile(), tp, [0, 1, 2, 3], env) == found


def test_a_cpu_profile_uses_no_gpu(node: LocalConnection) -> None:
    assert usable_gpus(node, profile(device="cpu"), 1, [0], {}) == []
