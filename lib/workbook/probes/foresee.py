"""Whether a whole model's piecewise capture will trace, asked without its GPUs; print one JSON object.

    PYTHONPATH=<overlay>:<SGLang's sources>:<FlashInfer's folder> python -P foresee.py SPEC.json

SPEC.json: {"files": the model's configuration by file name, "argv": SGLang's arguments with the model's folder as
"MODEL", "env": the server's own, "arch", "gpus", "rank"}. Every tensor is a fake one on a GPU that is not there;
nothing is computed.
"""

import json
import os
import resource
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path

from workbook_overlay.answer import answer

STARTED = time.perf_counter()
MODEL = "MODEL"


class Phases:
    """Seconds by phase, told on standard error as they end."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = STARTED

    def end(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now
        print(f"phase {name}: {self.seconds[name]:.1f} s", file=sys.stderr, flush=True)


def foresee(asked: dict, scratch: Path) -> dict:
    from workbook_foresee import device, group, kernels, settings

    phases = Phases()
    os.environ.update(asked["env"])
    declared = device.declare_gpus(asked["arch"], asked["gpus"])
    with ExitStack() as around, tempfile.TemporaryDirectory(dir=scratch) as folder:
        for name, text in asked["files"].items():
            (Path(folder) / name).write_text(text)
        kernels.stand_in()
        phases.end("import torch")
        answered = {
            "declared": declared,
            "gpu": device.GPUS[asked["arch"]].name,
            "stand_ins": kernels.STAND_INS,
            "versions": versions(),
        }
        heard = around.enter_context(settings.heard())
        try:
            args, reasons = server_args([folder if one == MODEL else one for one in asked["argv"]])
            group.join(asked["rank"], args.tp_size)
            kernels.import_sglang(args)
        except Exception as error:
            traceback.print_exc()
            return answered | unanswered(error, "import", phases)
        phases.end("import SGLang")
        return answered | run(args, asked["rank"], reasons, heard, phases)


def server_args(argv: list[str]):
    """SGLang's own arguments, and by which rules it switched piecewise graphs off."""
    import torch
    from workbook_foresee import settings

    import sglang.srt.utils.common as common  # isort: skip

    common.get_nvgpu_memory_capacity = lambda: torch.cuda.mem_get_info()[1] / 2**20  # it would ask nvidia-smi
    from sglang.srt.server_args import ServerArgs, prepare_server_args

    with settings.watched(ServerArgs) as reasons:
        args = prepare_server_args(argv)
    return args, [*reasons, *settings.overruled(args)]


def run(args, rank: int, reasons: list[str], heard: list[str], phases: Phases) -> dict:
    """What SGLang's model runner comes to."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from workbook_foresee import runner
    from workbook_foresee.answers import answered
    from workbook_overlay import patches

    torch._dynamo.config.verbose = True  # Dynamo keeps its frames, from which the layer is read
    reached = runner.Reached(phases.end)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    error = None
    try:
        with mode, torch.inference_mode(False), torch.no_grad(), answered(lambda: reached.num_tokens):
            runner.start(args, rank, reached)
    except (Exception, SystemExit) as raised:
        error = raised
    phases.end(reached.stage)
    return result(error, reached, phases) | {
        "switches": [*reasons, *heard],
        "applied": patches.APPLIED,
        "chosen": chosen(args),
    }


def result(error, reached, phases: Phases) -> dict:
    from workbook_foresee import memory
    from workbook_foresee.stops import located
    from workbook_overlay.pieces import describe

    graphs = [
        pair for pair in reached.graphs[: reached.graphs_of_model] if hasattr(pair[0], "piecewise_graphs")
    ]
    return {
        "stage": reached.stage,
        "error": located(error) if error is not None and not reached.stops else None,
        "compiled": reached.piecewise is not None and error is None,
        "stops": reached.stops,
        "graphs": [describe(backend, graph) for backend, graph in graphs],
        "pool_bytes": memory.peak_bytes(graphs[0][1]) if graphs else 0,
        "capture_sizes": reached.capture_sizes,
        "compiled_sizes": reached.compiled_sizes,
        "architecture": type(reached.model).__name__ if reached.model is not None else "",
        "layers": reached.num_layers,
        "weights_gib": reached.weights_gib,
        "seconds": phases.seconds,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def unanswered(error: BaseException, stage: str, phases: Phases) -> dict:
    """The answer where SGLang could not even be asked."""
    from workbook_foresee import runner

    reached = runner.Reached(phases.end)
    reached.stage = stage
    return result(error, reached, phases) | {"switches": [], "applied": [], "chosen": {}}


def chosen(args) -> dict[str, str]:
    """What SGLang chose where the profile leaves it the choice."""
    names = ("attention_backend", "moe_runner_backend", "fp4_gemm_runner_backend", "fp8_gemm_runner_backend",
             "kv_cache_dtype", "quantization", "dtype", "chunked_prefill_size", "page_size",
             "piecewise_cuda_graph_compiler", "nsa_prefill_backend", "nsa_decode_backend")  # fmt: skip
    return {name: str(getattr(args, name)) for name in names if getattr(args, name, None) is not None}


def versions() -> dict[str, str]:
    """Of what the answer rests on."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": sys.version.split()[0]}
    for name in ("torch", "sglang", "flashinfer-python", "transformers", "triton"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    spec = Path(sys.argv[1])
    status = answer(lambda: foresee(json.loads(spec.read_text()), spec.parent))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # torch's fake process group complains when it is torn down
