"""Level 2: the JIT module is loaded when FlashInfer is imported and handed over as a constant: no I/O left to trace."""

import inspect
import os
import re

import torch

from workbook_overlay.kernels import do_nothing, stand_in
from workbook_overlay.patches import PatchRefused

NAME = "jit-loading"
LOADED = {}


def get_fp4_quantization_module(backend: str = "100"):
    return LOADED[backend]


def replace(module, originals):
    try:
        major, minor = torch.cuda.get_device_capability()
    except (AssertionError, RuntimeError) as error:
        raise PatchRefused(
            f"patch {NAME}: needs a GPU, since it loads the kernel when FlashInfer is imported ({error}); "
            "nothing was patched"
        ) from None
    backend = f"{major}{minor}"
    # Set by a trace on a machine where no kernel can be built; a server never sets it.
    load = load_stand_in if os.environ.get("WORKBOOK_STAND_IN_KERNELS") == "1" else call
    LOADED[backend] = load(module.get_fp4_quantization_module, backend)
    return {"get_fp4_quantization_module": get_fp4_quantization_module}


def call(loader, backend):
    return loader(backend)


def load_stand_in(loader, backend):
    """What the installed loader returns around a module whose functions are foreign objects without a kernel."""
    import tvm_ffi

    note = "stand-in, loaded at import; its functions are real tvm_ffi.Function objects without a kernel"
    with stand_in(tvm_ffi.convert(do_nothing), note) as modules:
        loaded = loader(backend)
    for name in re.findall(r"\bmodule\.(\w+)\(", inspect.getsource(inspect.unwrap(loader))):
        getattr(modules[-1], name)  # an attribute, as in a loaded module, before Dynamo looks
    return loaded


def patched_source(name, source):
    """The installed loader stays, is called once at import, and a look-up takes its place."""
    kept = source.replace("@functools.cache\n", "").replace(f"def {name}(", "def installed_loader(", 1)
    called = "\n\nmajor, minor = torch.cuda.get_device_capability()\n"
    called += 'LOADED[f"{major}{minor}"] = installed_loader(f"{major}{minor}")\n\n\n'
    return kept + called + inspect.getsource(get_fp4_quantization_module)
