"""Level 2: the JIT module is loaded when FlashInfer is imported and handed over as a constant: no I/O left to trace."""

import inspect
import os
import re

import torch

from workbook_overlay.kernels import do_nothing, stand_in

NAME = "jit-loading"
KNOWN = {
    "get_fp4_quantization_module": {
        "04db0b8a02a572c8beba087d1ea22645ace6ab6b87714e1ab151bbef3b17d2ae": "0.6.18",
        "1a4809a404dfa6c2591a6a41fadb4ac4ce755b9942ae970ab6d65dcee2e0a4b0": "0.6.11.post1, 0.6.14",
        "21efa18b7db2b10695bf1072705db8f49397ee2b84c1b5666999bd17097346d3": "0.6.7.post3",
        "7e6f5f39fe7a4c255904bd5e8523d35f4b0117bb7d2da556878e36948e738faf": "0.7.4",
        "951bc01358b427933c50d39fe08843e258e4b28bc0853c5e30fe9f1465f11e5f": "0.6.1, 0.6.3",
        "e17ebeabe382ed713e758d519fd1fca629d4475488fdcb458e66c360078b6164": "0.7.2",
    },
}

LOADED = {}


def get_fp4_quantization_module(backend: str = "100"):
    return LOADED[backend]


def replace(module):
    major, minor = torch.cuda.get_device_capability()
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
