"""Dynamo's words to data, on answers recorded from the real Dynamo and FlashInfer (versions stand in the file)."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbook.boundary import diagnosis
from workbook.boundary.trace import TraceRequest, outcome
from workbook.types import Lane, ProcessState, Status

ANSWERS = json.loads((Path(__file__).parents[1] / "data/trace_answers.json").read_text())


def recorded(level, state):
    request = TraceRequest(patch_level=level, process_state=ProcessState(state))
    return outcome(request, ANSWERS[f"level{level}-{state}"])


@pytest.mark.parametrize(
    ("level", "state", "status", "operation", "blamed"),
    [
        (
            0,
            "cold",
            Status.DYNAMO_UNSUPPORTED,
            "_thread.allocate_lock",
            "flashinfer.jit.cpp_ext:get_cuda_path",
        ),
        (
            0,
            "warm",
            Status.DYNAMO_UNSUPPORTED,
            "_thread.allocate_lock",
            "flashinfer.jit.cpp_ext:get_cuda_path",
        ),
        (1, "cold", Status.DYNAMO_UNSUPPORTED, "datetime.now", "flashinfer.jit.core:register"),
        (1, "warm", Status.DYNAMO_UNSUPPORTED, "posix.stat", "flashinfer.jit.core:is_aot"),
        (
            2,
            "warm",
            Status.DYNAMO_UNSUPPORTED,
            "Function.__call__",
            "flashinfer.fp4_quantization:fp4_quantize_sm100",
        ),
        (3, "warm", Status.GRAPH_BREAK, "fp4_quantize", "flashinfer:fp4_quantize"),
        (4, "warm", Status.OK, None, None),
    ],
)
def test_recorded_answers(level, state, status, operation, blamed):
    found = recorded(level, state)
    assert (found.status, found.operation, found.blamed) == (status, operation, blamed)


def test_the_chain_is_whole_and_tells_no_folder_of_this_machine():
    frames = recorded(0, "cold").frames
    functions = [frame.function for frame in frames if frame.lane is Lane.FLASHINFER]
    assert functions[0] == "fp4_quantize" and functions[-1] == "get_cuda_path"
    assert "get_fp4_quantization_module" in functions and "is_cuda_version_at_least" in functions
    assert frames[0].lane is Lane.MODEL and frames[-1].lane is Lane.STDLIB
    assert not any(frame.file.startswith("/") for frame in frames)


@pytest.mark.parametrize(
    ("context", "operation"),
    [
        ("module: posix, qualname: getpid, skip reason: x", "posix.getpid"),
        ("module: <unknown module>, qualname: datetime.now, skip reason: <missing reason>", "datetime.now"),
        ("call_method UserDefinedClassVariable(<class 'datetime.datetime'>) now [] {}", "datetime.now"),
        (
            "call_method UserDefinedObjectVariable(Function) __call__ [TensorVariable()] {}",
            "Function.__call__",
        ),
        (
            "call_function UserDefinedClassVariable(<class 'types.SimpleNamespace'>) [] {}",
            "types.SimpleNamespace",
        ),
        ("<function fp4_quantize at 0x7fb61f5e31a0>", "fp4_quantize"),
        ("Function: fp4_quantize", "fp4_quantize"),
        ("object=ffi.Function", "Function.__call__"),  # torch 2.14
        ("Attempted SETUP_WITH/BEFORE_WITH on UserDefinedObjectVariable(RLock)", "RLock.__enter__"),
        (
            "Attempted SETUP_WITH/BEFORE_WITH/LOAD_SPECIAL on "
            "LazyVariableTracker(realized: UserDefinedObjectVariable(lock))",
            "lock.__enter__",
        ),
        ("builtin open [<class 'torch._dynamo.variables.x'>] False", "open"),
        ("something new at 0x7fb61f5e31a0 of Dynamo's", "something new of Dynamo's"),
    ],
)
def test_forms_of_the_debug_context(context, operation):
    assert diagnosis.operation(f"words\n  Developer debug context: {context}\n\nmore") == operation


def test_no_break_id_in_older_versions():
    assert diagnosis.break_id("Unsupported: call to a skipped function") is None


def test_a_disabled_function_is_a_graph_break_where_only_the_message_tells():
    message = "Skip calling `torch.compiler.disable()`d function\n  Explanation: x"  # torch 2.9
    error = {"type": "torch._dynamo.exc.Unsupported", "gb_type": None, "message": message, "stack": []}
    assert diagnosis.status(error) is Status.GRAPH_BREAK


@pytest.mark.parametrize(
    "message",
    [
        "PyTorch is not linked with support for cuda devices",
        "Torch not compiled with CUDA enabled",
        "RuntimeError: PyTorch was compiled without CUDA support",
        "Found no NVIDIA driver on your system",
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess",
    ],
)
def test_what_fails_for_want_of_a_gpu_says_nothing_about_the_code(message):
    error = {"type": "torch._dynamo.exc.Unsupported", "gb_type": None, "message": message, "stack": []}
    assert diagnosis.status(error) is Status.NOT_SUPPORTED_HERE


def test_an_exception_that_is_not_dynamos_is_a_crash():
    error = {"type": "builtins.RuntimeError", "gb_type": None, "message": "x", "stack": []}
    assert diagnosis.status(error) is Status.CRASHED


@given(st.text())
def test_any_text_is_read_without_an_exception(text):
    diagnosis.operation(f"Developer debug context: {text}")
    diagnosis.break_id(text)
    assert len(diagnosis.explanation(text)) <= len(text)


@pytest.mark.parametrize(
    ("file", "lane"),
    [
        ("flashinfer/jit/core.py", Lane.FLASHINFER),
        ("torch/_dynamo/polyfills/__init__.py", Lane.TORCH),
        ("sglang/srt/layers/linear.py", Lane.SGLANG),
        ("subprocess.py", Lane.STDLIB),
        ("workbook_overlay/tracing.py", Lane.MODEL),
        ("trace.py", Lane.STDLIB),
        ("remedies.py", Lane.MODEL),
        ("somewhere/else.py", Lane.OTHER),
    ],
)
def test_lanes(file, lane):
    assert diagnosis.lane(file) is lane


def test_an_explanation_leaves_out_the_frames_of_c_and_python():
    message = (
        'got RuntimeError("no data\\nException raised from x (frame #0: y)")\n\nfrom user code:\n  File "f"'
    )
    assert diagnosis.explanation(message) == 'got RuntimeError("no data'
    escaped = message.replace("\nException", "\\nException")
    assert diagnosis.explanation(escaped) == 'got RuntimeError("no data'


def test_a_branch_on_data_is_an_operation_and_the_advice_is_left_out():
    message = (
        "Consider annotating your code using torch._check*(). Could not guard on data-dependent expression u0 <= 2048 "
        "(unhinted: u0 <= 2048).  (Size-like symbols: none)\n\nCaused by: if skip:\n"
        'For more information, run with TORCH_LOGS="dynamic"\nUser Stack (most recent call last):'
    )
    assert diagnosis.operation(message) == "a branch on data: u0 <= 2048"
    assert diagnosis.explanation(message).endswith("Caused by: if skip:")
