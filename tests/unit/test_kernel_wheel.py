"""Schemas read from libraries: made ones, and whatever bytes there are."""

import io
import keyword
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.tiny_wheels import make_wheel
from workbook import kernel_wheel
from workbook.errors import WorkbookError
from workbook.kernel_wheel import SCHEMA, operator_schemas, read_schemas, unpack_python

REAL = [
    "rmsnorm(Tensor! output, Tensor input, Tensor weight, float eps, bool enable_pdl) -> ()",
    "topk(Tensor ? row_starts, Tensor!? out, int[] sizes, ScalarType? dtype=None) -> (Tensor, Tensor[])",
    "fwd(Tensor q, Generator? gen, float scale=1.5e-3, bool causal=False, int size=-1)-> Tensor[]",
    "get_size(int type) -> int",
]
NOT_SCHEMAS = [
    "expected f(Tensor a) -> Tensor", "f(Tensor a) -> Tensor failed", "f(const at::Tensor& a) -> at::Tensor",
    "auto (int) -> int", "f(Tensor a, ) -> ()", "f(Tensor a -> ()", "(Tensor a) -> ()", "f(int x=None) -> ()",
    "f(Tensor? a=None, Tensor b) -> ()",
]  # fmt: skip


def strings(*texts):
    return b"\x7fELF\x02\0" + b"\0".join(text.encode() for text in texts) + b"\0\xff\xfe"


def test_the_strings_that_are_schemas_are_found_among_others():
    assert sorted(read_schemas(io.BytesIO(strings(*REAL, *NOT_SCHEMAS)))) == sorted(REAL)


def test_runs_of_spaces_and_lines_in_a_schema_become_one_space():
    library = io.BytesIO(strings("f(  Tensor! a,\n\t\tTensor b,     int size_k) -> () "))
    assert list(read_schemas(library)) == ["f( Tensor! a, Tensor b, int size_k) -> ()"]


@pytest.mark.parametrize("chunk", [1, 2, 7, 64])
def test_a_schema_is_found_wherever_the_reading_pauses(monkeypatch, chunk):
    monkeypatch.setattr(kernel_wheel, "CHUNK", chunk)
    assert sorted(read_schemas(io.BytesIO(strings(*REAL, *NOT_SCHEMAS)))) == sorted(REAL)


@given(st.lists(st.binary() | st.sampled_from([b") -> ", b"\0", b"f(", *(one.encode() for one in REAL)])))
def test_any_bytes_are_read_and_give_schemas_only(pieces):
    assert all(SCHEMA.fullmatch(schema) for schema in read_schemas(io.BytesIO(b"".join(pieces))))


@pytest.fixture(scope="module")
def parse_schema():
    return pytest.importorskip("torch")._C.parse_schema


@settings(deadline=None)
@given(schema=st.from_regex(SCHEMA, fullmatch=True))
def test_the_parser_of_torch_accepts_whatever_passes_for_a_schema(parse_schema, schema):
    assume(not any(keyword.iskeyword(word) for word in re.findall(r"\w+", schema)))  # it takes none as a name
    parse_schema(schema)


def test_a_wheel_gives_its_python_and_the_schemas_of_its_libraries(tmp_path):
    files = {
        "sgl_kernel/__init__.py": b"import torch\n",
        "sgl_kernel/quantization/gguf.py": b"",
        "sgl_kernel/sm90/common_ops.abi3.so": strings(REAL[0], REAL[1]),
        "sgl_kernel/sm100/common_ops.abi3.so": strings(REAL[1]),
        "sgl_kernel/flash_ops.abi3.so": strings(REAL[2]),
        "deep_gemm/deep_gemm_cpp.abi3.so": strings(REAL[3]),
        "deep_gemm/__init__.py": b"",
        "include/setup.py": b"",
        "triton_kernels/topk.py": b"",
        "triton_kernels/data.bin": b"",
    }
    wheel = make_wheel(tmp_path, "sgl_kernel", "0.3.21", files=files)
    read = []
    assert operator_schemas(wheel, read.append) == sorted(REAL[:2])
    assert read == ["sgl_kernel/sm90/common_ops.abi3.so", "sgl_kernel/sm100/common_ops.abi3.so"]
    unpack_python(wheel, tmp_path / "out")
    found = {
        str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()
    }
    assert found == {"sgl_kernel/__init__.py", "sgl_kernel/quantization/gguf.py", "triton_kernels/topk.py"}


def test_a_wheel_without_schemas_is_named(tmp_path):
    wheel = make_wheel(tmp_path, "sgl_kernel", "9.0", files={"sgl_kernel/ops.abi3.so": b"\0nothing\0"})
    with pytest.raises(WorkbookError, match=r"sgl_kernel-9\.0-.* has no operator schemas"):
        operator_schemas(wheel)
