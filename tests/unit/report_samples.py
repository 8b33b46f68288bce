"""Sample records for the tests of the report layer. Nothing here was measured."""

from collections.abc import Mapping

import pandas as pd

from workbook.types import (
    BenchPoint,
    Declared,
    Forecast,
    Foretold,
    Frame,
    Lane,
    ModelBlocker,
    PatchLevel,
    ProcessState,
    SplitGraph,
    Status,
    TraceOutcome,
)

HOSTILE = '<script>alert(1)</script>" onmouseover="x\x00\x1b[31m\u202e&amp;'

LEVELS = tuple(
    PatchLevel(level=level, name=name, changes="", expected="", patches=())
    for level, name in enumerate(
        ("unpatched", "cuda-version", "jit-loading", "compiler-disable", "custom-op")
    )
)

QUANTIZER = "flashinfer/fp4_quantization.py"
CPP_EXT = "flashinfer/jit/cpp_ext.py"
POLYFILLS = "torch/_dynamo/polyfills/__init__.py"
CHAIN = (
    (Lane.MODEL, "model.py", "forward", 4),
    (Lane.FLASHINFER, QUANTIZER, "fp4_quantize", 677),
    (Lane.TORCH, POLYFILLS, "getattr_and_trace", 487),
    (Lane.FLASHINFER, QUANTIZER, "get_fp4_quantization_module", 151),
    (Lane.FLASHINFER, QUANTIZER, "gen_fp4_quantization_sm120_module", 99),
    (Lane.FLASHINFER, QUANTIZER, "gen_fp4_quantization_module", 123),
    (Lane.FLASHINFER, CPP_EXT, "is_cuda_version_at_least", 87),
    (Lane.TORCH, POLYFILLS, "getattr_and_trace", 487),
    (Lane.TORCH, POLYFILLS, "getattr_and_trace", 487),
    (Lane.FLASHINFER, CPP_EXT, "get_cuda_path", 49),
    (Lane.STDLIB, "subprocess.py", "run", 548),
    (Lane.STDLIB, "subprocess.py", "__init__", 828),
)


def frame(lane: Lane, file: str, function: str, line: int) -> Frame:
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return Frame(lane=lane, module=module, function=function, file=file, line=line)


def trace(level: int = 0, depth: int = len(CHAIN), **changes: object) -> TraceOutcome:
    """A trace that stops in the sample chain after `depth` frames."""
    fields: dict[str, object] = {
        "entry": "flashinfer.fp4_quantize",
        "arch": "sm120",
        "patch_level": level,
        "process_state": ProcessState.WARM,
        "status": Status.DYNAMO_UNSUPPORTED,
        "break_id": "gb0007",
        "operation": "_thread.allocate_lock",
        "blamed": "flashinfer.jit.cpp_ext:get_cuda_path",
        "frames": tuple(frame(*step) for step in CHAIN[:depth]),
        "message": "Attempted to call function marked as skipped\n  Explanation: none",
        "seconds": 0.8,
        "versions": {"torch": "2.9.1", "flashinfer-python": "0.6.3"},
        "declared": Declared(
            inputs="fake CUDA tensors",
            input_shapes=("(128, 256) bfloat16",),
            compute_capability=(12, 0),
            cuda_version="12.8",
            cuda_version_source="declared",
            arch_list="12.0a",
            cuda_home=None,
        ),
    }
    return TraceOutcome.model_validate(fields | changes)


def passed(level: int = 4, **changes: object) -> TraceOutcome:
    """A trace that gets through."""
    gone = {"status": Status.OK, "break_id": None, "operation": None, "blamed": None, "message": ""}
    return trace(level, 0, **gone, output_shapes=("(128, 128) uint8", "(128, 16) uint8"), **changes)


def bench(speeds: Mapping[int, list[float]], label: str = "base", **changes: object) -> pd.DataFrame:
    """One row per repeat; `speeds` maps a concurrency to output tokens/s of its repeats."""
    rows = []
    for concurrency, values in speeds.items():
        for repeat, value in enumerate(values):
            point = {
                "run_id": "sample",
                "label": label,
                "concurrency": concurrency,
                "repeat": repeat,
                "requested": 100,
                "completed": 100,
                "failed": 0,
                "duration_s": 10.0,
                "output_tok_s": value,
                "ttft_ms_p50": 40.0,
                "ttft_ms_p90": 80.0,
                "ttft_ms_p99": 120.0,
                "seed": repeat,
            }
            rows.append(BenchPoint.model_validate(point | changes).model_dump())
    return pd.DataFrame(rows)


def forecast(*stops: ModelBlocker, **changes: object) -> Forecast:
    """A forecast: that it stops where stops are given, each passed in the end, else that it traces."""
    end = {"status": Status.OK, "operation": None, "blamed": None, "frames": (), "passed": "end"}
    graph = SplitGraph(
        pieces=9, split=4, compiled=5, split_ops={"sglang.attention": 4}, operations={"add": 8}, nodes=99
    )
    fields: dict[str, object] = {
        "profile": "glm5-nvfp4-tp8",
        "model": "GLM-5-NVFP4",
        "architecture": "GlmMoeDsaForCausalLM",
        "quantization": "modelopt_fp4",
        "stack": "seed",
        "torch_pin": "2.9.1",
        "versions": {"torch": "2.13.0+cpu", "sglang": "0.5.9"},
        "arch": "sm120",
        "tp": 8,
        "rank": 0,
        "patch_level": 0,
        "outcome": Foretold.STOPS if stops else Foretold.TRACES,
        "layers": 4,
        "model_layers": 78,
        "blockers": (*stops, model_stop(order=len(stops) + 1, **end)) if stops else (),
        "graphs": () if stops else (graph, graph),
        "capture_sizes": (4, 8, 2048),
        "declared": trace().declared,
        "gpu": "a GPU",
        "stand_ins": ("weights: none",),
        "seconds": {"load": 1.0, "trace": 20.0},
        "peak_gib": 0.7,
    }
    return Forecast.model_validate(fields | changes)


def model_stop(**changes: object) -> ModelBlocker:
    """A stop in the sample chain, which patch level 4 gets past."""
    shared = trace().model_dump(include=set(ModelBlocker.model_fields))
    fields = {
        "order": 1,
        "passed": "opaque",
        "how": "is an operator",
        "layer": "model.layers.0.mlp",
        "past": "patch level 4",
        "past_level": 4,
    }
    return ModelBlocker.model_validate(shared | fields | changes)
