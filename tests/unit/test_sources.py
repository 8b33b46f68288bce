"""SGLang's sources in a folder, made for real, by pip, from small wheels."""

import shutil

import pytest

from tests.tiny_stacks import lies_in, made, stack, workbook
from tests.tiny_wheels import make_wheel
from workbook import catalog, disk, stacks
from workbook.errors import UsageError, WorkbookError
from workbook.node.local import LocalConnection
from workbook.node.probe import check_sglang, sglang_dir
from workbook.paths import LOCKS
from workbook.sources import pinned_kernels
from workbook.types import Node, Stack

KERNELS = {
    "seed": "sgl-kernel 0.3.21",
    "hopper": "sglang-kernel 0.4.2.post2",
    "current": "sglang-kernel 0.4.10",
}
SCHEMA = "rmsnorm(Tensor! output, Tensor input, float eps) -> ()"


@pytest.fixture
def sources(world):
    """The small stacks, with a kernel wheel in the locks of `tiny` and `other`, which have the same SGLang."""
    wheels = world / "wheels"
    make_wheel(
        wheels, "sglang", "1.0", requires=["gravel"], files={"sglang/__init__.py": b"version = '1.0'\n"}
    )
    library = b"\x7fELF\0" + SCHEMA.encode() + b"\0"
    files = {
        "sgl_kernel/__init__.py": b"",
        "sgl_kernel/sm90/common_ops.abi3.so": library,
        "deep_gemm/x.py": b"",
    }
    make_wheel(wheels, "sglang_kernel", "0.5", files=files, tag="cp310-abi3-manylinux2014_x86_64")
    for name in ("tiny", "other"):
        with (world / "locks" / f"{name}.txt").open("a") as lock:
            lock.write("sglang_kernel==0.5\n")
    return world


def test_sources_are_sglang_and_its_kernels_python_and_schemas_and_no_environment(sources, node):
    packages = []
    said = made(node, "tiny", sources=True, on_package=packages.append)
    assert "Putting SGLang 1.0's sources in a folder, with the Python of sglang-kernel 0.5." in said
    assert "SGLang 1.0's sources are ready: 0.00 GB" in said
    assert packages[-1] == "Reading operator schemas in sgl_kernel/sm90/common_ops.abi3.so"
    assert lies_in(sources) == ["flashinfer-python-1.0", "sglang-1.0"]
    folder = sglang_dir(node, stack("tiny"))
    found = sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*.*") if ".dist-info" not in str(path)
    )
    assert found == ["sgl_kernel/__init__.py", "sgl_kernel/schemas.txt", "sglang/__init__.py"]
    assert (folder / "sgl_kernel" / "schemas.txt").read_text() == f"{SCHEMA}\n"
    check_sglang(node, stack("tiny"))
    assert stacks.created(node, stack("tiny")) is None


def test_they_are_made_once_listed_and_removed(sources, node):
    done = workbook(sources, "stack", "create", "tiny", "--sources")
    assert done.returncode == 0, done.stderr
    before = {path: path.lstat().st_mtime_ns for path in (sources / "stacks" / "sglang-1.0").rglob("*")}
    assert "SGLang 1.0's sources are here already" in made(node, "tiny", sources=True)
    assert before == {
        path: path.lstat().st_mtime_ns for path in (sources / "stacks" / "sglang-1.0").rglob("*")
    }
    assert "SGLang 1.0, sources: 0.00 GB in" in workbook(sources, "stack", "list").stdout
    (sources / "locks" / "other.txt").write_text("pebble==1.0\n")  # now of `tiny` alone
    done = workbook(sources, "stack", "remove", "tiny")
    assert done.returncode == 0 and "sglang-1.0 is removed: 0.00 GB" in done.stdout
    assert "Stack tiny is removed" not in done.stdout
    assert lies_in(sources) == ["flashinfer-python-1.0"]


def test_sources_that_another_stack_has_too_stay(sources, node):
    made(node, "tiny", sources=True)
    with pytest.raises(UsageError, match="Stack other is not here"):
        stacks.remove(node, stack("other"))
    made(node, "other")
    said = []
    stacks.remove(node, stack("other"), say=said.append)
    assert "sglang-1.0 stays where it is, since stack tiny has it too." in said
    assert lies_in(sources) == ["flashinfer-python-1.0", "sglang-1.0"]


def test_an_environment_that_is_removed_takes_its_caches_along(sources, node):
    made(node, "tiny")
    for name in ("tiny-sglang-1.0", "other-sglang-1.0"):
        (sources / "stacks" / "caches" / name / "level-0").mkdir(parents=True)
    stacks.remove(node, stack("tiny"))
    assert [path.name for path in (sources / "stacks" / "caches").iterdir()] == ["other-sglang-1.0"]


def test_what_an_interrupted_making_left_does_not_count_and_is_replaced(sources, node):
    (sources / "stacks" / "sglang-1.0.partial" / "site").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"SGLang 1\.0's sources are not on node local"):
        check_sglang(node, stack("tiny"))
    assert stacks.version_folders("sglang") == {}
    made(node, "tiny", sources=True)
    assert lies_in(sources) == ["flashinfer-python-1.0", "sglang-1.0"]


def test_a_kernel_wheel_that_is_missing_or_has_no_schemas_leaves_nothing(sources, node):
    (wheel,) = (sources / "wheels").glob("sglang_kernel-*")
    wheel.unlink()
    with pytest.raises(UsageError, match=r"pip finds no sglang-kernel==0\.5"):
        made(node, "tiny", sources=True)
    assert lies_in(sources) == ["flashinfer-python-1.0"]
    make_wheel(sources / "wheels", "sglang_kernel", "0.5")
    with pytest.raises(WorkbookError, match="has no operator schemas"):
        made(node, "tiny", sources=True)
    assert lies_in(sources) == ["flashinfer-python-1.0"]


def test_a_disk_too_small_stops_before_anything_is_fetched(sources, node, monkeypatch):
    usage = shutil.disk_usage(sources)._replace(free=int(1.0e9))
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    sglang, flashinfer = (max(table.items())[1] for table in (disk.SGLANG_DISK, disk.FLASHINFER_DISK))
    needed = sglang.peak_gb + flashinfer.installed_gb  # FlashInfer is there by then
    with pytest.raises(UsageError, match=rf"has 1\.00 GB free, and this needs about {needed:.2f} GB"):
        made(node, "tiny", sources=True)
    assert lies_in(sources) == []


def test_a_stack_without_kernels_and_an_environment_without_a_server_are_refused(sources, node):
    done = workbook(sources, "stack", "create", "embedded", "--sources")
    assert done.returncode == 2 and done.stdout == ""
    assert "Stack embedded has no kernels in its lock, since its SGLang runs on the CPU" in done.stderr
    done = workbook(sources, "stack", "create", "tiny", "--sources", "--minimal")
    assert done.returncode == 2 and "leave out --minimal" in done.stderr
    assert lies_in(sources) == []


def test_what_is_missing_names_the_command(tmp_path, monkeypatch, node):
    monkeypatch.setenv("WORKBOOK_STACKS", str(tmp_path))
    seed = catalog.load(Stack, "seed")
    with pytest.raises(UsageError) as refusal:
        check_sglang(node, seed)
    assert str(refusal.value) == (
        f"SGLang 0.5.9's sources are not on node local (looked in {tmp_path / 'sglang-0.5.9'}). "
        "Run: workbook stack create seed --sources"
    )


def test_on_another_machine_they_are_copied(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBOOK_STACKS", str(tmp_path))
    stub = LocalConnection(Node(name="far", kind="ssh", host="ssh://far"))  # its folders are this machine's
    with pytest.raises(UsageError, match="are not on node far") as refusal:
        check_sglang(stub, catalog.load(Stack, "hopper"))
    assert "Run here: workbook stack create hopper --sources; then copy " in str(refusal.value)


@pytest.mark.parametrize("name", catalog.names(Stack))
def test_every_stack_that_runs_on_gpus_pins_a_kernel_wheel(name):
    kernels = pinned_kernels(LOCKS / f"{name}.txt")
    assert (str(kernels) if kernels else None) == KERNELS.get(name)
