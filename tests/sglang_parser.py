"""Ask the SGLang on this Python's path what its command line takes, and what it makes of given ones, without a GPU.

    python -P sglang_parser.py <REQUESTS

REQUESTS is a JSON array of objects, maybe empty: `argv`, and `gpu`, which the process is told that it has (`count`,
`capability`, `memory_mib`) or null. Prints one JSON line: the parser's options, and for each request the arguments
as SGLang resolves them before it starts anything, or its refusal.
"""

import argparse
import functools
import json
import multiprocessing
import sys

import torch
from transformers import AutoConfig

# A newer transformers brings some of the configs that an older SGLang registers; registering them anew is harmless.
AutoConfig.register = staticmethod(functools.partial(AutoConfig.register, exist_ok=True))

import sglang.srt.configs.model_config  # noqa: E402, F401  (before a GPU is declared: it would look for kernels)
from sglang.srt.server_args import ServerArgs  # noqa: E402

try:  # from 0.5.20 on what was resolved is kept beside what was asked
    from sglang.srt.arg_groups.model_override_base import resolved_view
except ImportError:

    def resolved_view(args):
        return args


COUNTS = {None: (1, 1), 0: (0, 0), "?": (0, 1), "*": (0, None), "+": (1, None)}
TOLD = (
    *("model_path", "load_format", "device", "tp_size", "ep_size", "quantization", "attention_backend"),
    *(
        "moe_runner_backend",
        "moe_a2a_backend",
        "nsa_decode_backend",
        "nsa_prefill_backend",
        "dsa_decode_backend",
    ),
    *(
        "dsa_prefill_backend",
        "mem_fraction_static",
        "enable_mscclpp",
        "disable_custom_all_reduce",
        "host",
        "port",
    ),
    *("kv_cache_dtype", "max_total_tokens", "sampling_backend", "chunked_prefill_size"),
)


class Parser(argparse.ArgumentParser):
    """Its refusals are exceptions."""

    def error(self, message):
        raise ValueError(message)


PARSER = Parser()
ServerArgs.add_cli_args(PARSER)


def takes_effect(action):
    """Whether using the option does anything: of some that it gave up, SGLang only says so."""
    return type(action).__name__ not in ("_HelpAction", "DeprecatedAction")


def described(action):
    """An option as the record has it; what is usual is left out."""
    fewest, most = COUNTS[action.nargs]
    kind = action.type.__name__ if action.type in (int, float) else "text"
    told = {"sets": action.dest, "kind": kind, "fewest": fewest, "most": most}
    told["choices"] = sorted(map(str, action.choices or ()))
    usual = {"kind": "text", "fewest": 1, "most": 1, "choices": []}
    return {key: value for key, value in told.items() if key not in usual or value != usual[key]}


def declare(gpu):
    """Let torch answer as if it had these GPUs; nothing runs on them."""

    class Properties:
        name, major, minor = "declared", *gpu["capability"]
        total_memory = gpu["memory_mib"] << 20
        multi_processor_count = 132

    torch.version.cuda = torch.version.cuda or "13.0"
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: gpu["count"]
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_capability = lambda device=None: tuple(gpu["capability"])
    torch.cuda.get_device_name = lambda device=None: Properties.name
    torch.cuda.get_device_properties = lambda device=None: Properties()
    torch.cuda.mem_get_info = lambda device=None: (Properties.total_memory, Properties.total_memory)
    for module in list(sys.modules.values()):  # SGLang asks nvidia-smi, by whichever name it imported this
        if getattr(module, "__name__", "").startswith("sglang.") and hasattr(
            module, "get_device_memory_capacity"
        ):
            module.get_device_memory_capacity = lambda device=None: gpu["memory_mib"]


def captures(args):
    """(decode, prefill): what would be captured, in the words of the newest versions; and the decode sizes."""
    config = getattr(args, "cuda_graph_config", None)
    if config is not None:
        return config.decode.backend, config.prefill.backend, config.decode.bs
    piecewise = getattr(args, "enable_piecewise_cuda_graph", None)
    if piecewise is None:
        piecewise = not args.disable_piecewise_cuda_graph
    kind = "breakable" if getattr(args, "enable_breakable_cuda_graph", False) else "tc_piecewise"
    decode = "disabled" if args.disable_cuda_graph else "full"
    return decode, kind if piecewise else "disabled", args.cuda_graph_bs


def resolved(request):
    try:
        asked = PARSER.parse_args(request["argv"])
    except ValueError as refusal:
        return {"refused": str(refusal)}
    if request["gpu"]:
        declare(request["gpu"])
    args = ServerArgs.from_cli_args(asked)
    if hasattr(args, "resolve_once"):
        args.resolve_once()
    args = resolved_view(args)
    told = {name: getattr(args, name) for name in TOLD if hasattr(args, name)}
    if request["gpu"]:
        told["decode"], told["prefill"], told["decode_sizes"] = captures(args)
    return told


def main():
    requests = json.load(sys.stdin)
    options = {
        flag: described(action)
        for action in PARSER._actions
        if takes_effect(action)
        for flag in action.option_strings
    }
    # each in a process of its own: SGLang keeps what it found out about the GPU, and sets variables
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as fresh:
        answers = fresh.map(resolved, requests, chunksize=1)
    print(json.dumps({"options": options, "answers": answers}))


main()
