"""Compile and split a small module with SGLang's own machinery and print what came of it as one JSON object.

    PYTHONPATH=<overlay>:<FlashInfer's folder> WORKBOOK_CPU_SGLANG=1 python split.py '{"arch": "sm120", ...}'

The module is three layers of: normalise, quantize to FP4 with FlashInfer, multiply, attend. Attention is the operator
at which SGLang splits. `install_torch_compiled` and `SGLangBackend` are SGLang's, as its piecewise runner uses them;
tensors are FakeTensors that claim to be CUDA tensors, so nothing is computed and nothing captured.
"""

import sys
import time
import types
from contextlib import ExitStack
from importlib.util import find_spec

from workbook_overlay.answer import answer, spec

# where weak references to captured tensors are made: in SGLang 0.5.14 and later, and up to 0.5.13
WEAK_REFS = (
    "sglang.srt.model_executor.runner_backend_utils.weak_ref_tensor",
    "sglang.srt.compilation.weak_ref_tensor",
)
ATTENTION = "workbook_toy.attention"
SF_VEC = 16  # elements per FP4 scale factor


def import_sglang(stand_ins: list[str]):
    """SGLang's compile machinery; what it imports for CUDA alone is stood in for where that is missing."""
    import torch

    if not torch.cuda.is_available():

        def weak_ref_tensors(tensors):
            raise NotImplementedError("weak_ref_tensors needs CUDA")

        for name in WEAK_REFS:
            absent = types.ModuleType(name)
            absent.weak_ref_tensors = weak_ref_tensors
            sys.modules[name] = absent
        stand_ins.append(
            "sglang weak_ref_tensors: raises when called (it is called when a graph is captured)"
        )
    from sglang.srt.compilation import compile as compiling
    from sglang.srt.compilation.backend import SGLangBackend
    from sglang.srt.compilation.compilation_config import CompilationConfig

    return types.SimpleNamespace(
        backend=SGLangBackend,
        config=CompilationConfig,
        install=compiling.install_torch_compiled,
        contexts=contexts(compiling),
    )


def contexts(compiling) -> list:
    """What the piecewise runner enters while it compiles, in its order; 0.5.9 also switches the compiled forward on."""
    if find_spec("sglang.srt.compilation.compile_phase") is None:  # up to 0.5.13
        from sglang.srt.compilation import piecewise_context_manager as manager

        found = [manager.enable_piecewise_cuda_graph, manager.enable_piecewise_cuda_graph_compile]
    else:
        from sglang.srt.compilation.compile_phase import enable_torch_compile_warmup
        from sglang.srt.model_executor.runner_backend_utils.tc_piecewise_cuda_graph import (
            enable_tc_piecewise_cuda_graph,
        )

        found = [enable_tc_piecewise_cuda_graph, enable_torch_compile_warmup]
    return [*found, *filter(None, [getattr(compiling, "set_compiled", None)])]


def define_attention(torch) -> object:
    """The operator to split at: causal self-attention over one sequence, (tokens, hidden) -> (tokens, hidden)."""
    library = torch.library.Library(ATTENTION.partition(".")[0], "FRAGMENT")
    library.define("attention(Tensor x) -> Tensor")

    def attention(x):
        heads = x.unsqueeze(0)
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True).squeeze(
            0
        )

    library.impl("attention", attention, "CompositeExplicitAutograd")
    torch.library.register_fake("workbook_toy::attention", torch.empty_like, lib=library)
    return library


def build(torch, flashinfer, hidden: int, layers: int):
    """The small module; parameters are bfloat16, (hidden, hidden) a layer."""

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.Parameter(torch.empty(hidden, dtype=torch.bfloat16), requires_grad=False)
            self.weight = torch.nn.Parameter(
                torch.empty(hidden, hidden, dtype=torch.bfloat16), requires_grad=False
            )
            self.global_scale = torch.nn.Parameter(torch.empty(1), requires_grad=False)
            self.register_buffer("e2m1", torch.empty(16, 1, dtype=torch.bfloat16))

        def dequantize(self, values, scales):
            nibbles = torch.stack((values & 15, values >> 4), dim=-1).flatten(-2)
            decoded = torch.nn.functional.embedding(nibbles.int(), self.e2m1).squeeze(-1)
            scale = scales.view(torch.float8_e4m3fn).to(torch.bfloat16).repeat_interleave(SF_VEC, dim=-1)
            return decoded * scale / self.global_scale.to(torch.bfloat16)

        def forward(self, x):
            x = torch.nn.functional.rms_norm(x, (hidden,), self.norm)
            values, scales = flashinfer.fp4_quantize(x, self.global_scale, is_sf_swizzled_layout=False)
            return torch.ops.workbook_toy.attention(self.dequantize(values, scales) @ self.weight)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(Layer() for _ in range(layers))
            self.norm = torch.nn.Parameter(torch.empty(hidden, dtype=torch.bfloat16), requires_grad=False)

        def forward(self, x: torch.Tensor):
            for layer in self.layers:
                x = layer(x)
            return torch.nn.functional.rms_norm(x, (hidden,), self.norm)

    return Model()


def describe(backend) -> list[dict]:
    """The pieces of a split graph, in order, with the operations of each."""
    return [
        {
            "name": piece.submod_name,
            "split": piece.is_splitting_graph,
            "operations": [
                getattr(node.target, "__name__", str(node.target))
                if node.op == "call_function"
                else node.target
                for node in piece.graph.graph.nodes
                if node.op in ("call_function", "call_method")
            ],
        }
        for piece in backend.piecewise_graphs
    ]


def split(spec: dict) -> dict:
    import torch
    from workbook_overlay import kernels, patches
    from workbook_overlay.declare import declare_gpu
    from workbook_overlay.explain import explain

    result = {
        "pieces": [],
        "num_graphs": 0,
        "error": None,
        "import_error": None,
        "stand_ins": kernels.STAND_INS,
    }
    result["num_gpus"] = torch.cuda.device_count() if torch.cuda.is_available() else 0
    versions = {"python": sys.version.split()[0], "torch": torch.__version__}
    result["versions"] = versions
    try:
        sglang = import_sglang(kernels.STAND_INS)
    except Exception as error:  # SGLang of another version, or none: that is an answer
        result["import_error"] = f"{type(error).__name__}: {error}".splitlines()[0]
    result["declared"] = declare_gpu(spec["arch"])
    import flashinfer

    versions["flashinfer-python"] = flashinfer.__version__
    started = time.perf_counter()
    if result["import_error"] is None:
        import sglang as package

        versions["sglang"] = package.__version__
        compile_and_split(torch, flashinfer, sglang, spec, result, explain)
    return result | {"seconds": time.perf_counter() - started, "applied": patches.APPLIED}


def compile_and_split(torch, flashinfer, sglang, spec: dict, result: dict, explain) -> None:
    """The compile step of SGLang's piecewise runner at every capture size, largest first as there."""
    import torch.distributed as dist
    from torch._subclasses.fake_tensor import FakeTensorMode

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    keep = define_attention(torch)
    config = sglang.config(spec["capture_sizes"], "eager")
    config.add_split_op(ATTENTION)
    backends = []

    def backend_factory(graph, example_inputs):
        backends.append(sglang.backend(config, graph_pool="none: nothing is captured"))
        return backends[-1](graph, example_inputs)

    with FakeTensorMode(), torch.device("cuda"), torch.no_grad():
        model = build(torch, flashinfer, spec["hidden"], spec["num_layers"])
        sglang.install(model, compile_config=config, graph_pool="none", backend_factory=backend_factory)
        try:
            with ExitStack() as entered:
                for context in sglang.contexts:
                    entered.enter_context(context())
                for num_tokens in sorted(spec["capture_sizes"], reverse=True):
                    model.forward(torch.empty(num_tokens, spec["hidden"], dtype=torch.bfloat16))
        except Exception as error:
            result["error"] = explain(error)
    done = [backend for backend in backends if hasattr(backend, "piecewise_graphs")]
    result["num_graphs"] = len(done)
    result["pieces"] = describe(done[0]) if done else []
    del keep
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(answer(lambda: split(spec())))
