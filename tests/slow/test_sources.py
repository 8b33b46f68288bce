"""SGLang's sources as they are published, and a making of them that is interrupted."""

import signal
import socket
import subprocess
import sys

import psutil
import pytest
import torch

from tests.processes import running, wait_for
from tests.tiny_stacks import COMMAND, lies_in, made
from tests.tiny_wheels import make_wheel
from workbook import catalog, stacks
from workbook.errors import UsageError
from workbook.node.probe import sglang_dir
from workbook.types import Stack

pytestmark = pytest.mark.slow


def check(folder):
    """All of it is there, and torch defines its operators: each schema is one, and no name comes twice."""
    assert (folder / "sglang" / "srt" / "server_args.py").is_file()
    assert (folder / "sgl_kernel" / "__init__.py").is_file() and (folder / "triton_kernels").is_dir()
    assert not list((folder / "sgl_kernel").rglob("*.so"))
    schemas = (folder / "sgl_kernel" / "schemas.txt").read_text().splitlines()
    library = torch.library.Library(f"workbook_{folder.name}".replace("-", "_").replace(".", "_"), "FRAGMENT")
    names = {library.define(schema) for schema in schemas}
    assert len(names) == len(schemas) and {"rmsnorm", "silu_and_mul", "moe_align_block_size"} <= names


@pytest.mark.parametrize("name", [name for name in catalog.names(Stack) if name != "embedded"])
def test_the_sources_that_are_here(node, name):
    folder = sglang_dir(node, catalog.load(Stack, name))
    if not folder.is_dir():
        pytest.skip(f"not here (workbook stack create {name} --sources)")
    check(folder)


def test_sources_from_the_index_that_pip_is_set_up_with(node, tmp_path, monkeypatch):
    """Of the stack with the smallest kernel wheel, 0.3 GB."""
    monkeypatch.setenv("WORKBOOK_STACKS", str(tmp_path))
    stack = catalog.load(Stack, "hopper")
    try:
        stacks.create(node, stack, sources=True)
    except UsageError as refusal:
        if "no version at all" not in str(refusal):
            raise
        pytest.skip(f"no package index answers: {refusal}")
    check(sglang_dir(node, stack))
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        f"flashinfer-python-{stack.flashinfer}", f"sglang-{stack.sglang}"
    ]  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_download_that_is_interrupted_leaves_no_process_and_nothing_that_looks_whole(
    world, node, monkeypatch, number
):
    made(node, "embedded")  # FlashInfer is there
    make_wheel(world / "wheels", "sglang", "1.0", files={"sglang/__init__.py": b""})
    (world / "locks" / "tiny.txt").write_text("sgl-kernel==0.1\n")
    monkeypatch.delenv("PIP_NO_INDEX")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # an index that never answers
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, str(world), "stack", "create", "tiny", "--sources"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        silent.settimeout(60)
        with silent.accept()[0]:
            started = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
            assert started and "sglang-1.0.partial" in lies_in(world)
            process.send_signal(number)
            _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in stderr and "Traceback" not in stderr
    wait_for(lambda: not running(started))
    assert lies_in(world) == ["flashinfer-python-1.0"]
