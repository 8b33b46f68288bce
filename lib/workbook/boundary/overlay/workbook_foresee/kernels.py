"""Compiled kernel libraries that are not there: their operators by schema, their modules, the kernels SGLang builds.

`sgl_kernel` is the wheel's own Python over operators that have a schema and no kernel. What else is imported for its
kernels alone is a module whose functions refuse to be called.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from contextlib import contextmanager, suppress
from pathlib import Path

#: What was stood in for in this process, for the record.
STAND_INS: list[str] = []

SCHEMAS = "schemas.txt"
_LIBRARIES: list[object] = []  # an operator lives as long as its library
_ABSENT = ("cuda.bindings", "deep_gemm", "deep_gemm_cpp", "flashinfer.comm.cuda_ipc", "sgl_kernel.flash_ops",
           "sgl_kernel.flashmla_ops", "sgl_kernel.spatial_ops", "sgl_kernel.infllm_ops")  # fmt: skip


def note(text: str) -> None:
    """Tell of a stand-in, once."""
    if text not in STAND_INS:
        STAND_INS.append(text)


def stand_in() -> None:
    """Put the stand-ins in the place of compiled libraries. Before SGLang is imported."""
    from workbook_overlay.cpu_sglang import complete_torchvision
    from workbook_overlay.hook import after_import, before_import

    before_import("torchvision", complete_torchvision)
    after_import("transformers.models.auto.configuration_auto", _take_the_package_s_own)
    sys.meta_path.insert(0, _Absent())
    define_operators()


def _take_the_package_s_own(module) -> None:
    """SGLang may register a model's configuration that this, newer, transformers has itself by now."""
    register = module.AutoConfig.register

    def register_anew(model_type, config, exist_ok=False):
        return register(model_type, config, exist_ok=True)

    module.AutoConfig.register = staticmethod(register_anew)


def define_operators() -> None:
    """Define `torch.ops.sgl_kernel` from the schemas that were read from the wheel's library."""
    import torch

    folder = next(
        (Path(one) / "sgl_kernel" for one in sys.path if (Path(one) / "sgl_kernel" / SCHEMAS).is_file()), None
    )
    if folder is None:
        raise ImportError(f"no sgl_kernel with {SCHEMAS} on the path")
    library = torch.library.Library("sgl_kernel", "FRAGMENT")
    _LIBRARIES.append(library)
    schemas = (folder / SCHEMAS).read_text().splitlines()
    for schema in schemas:
        library.define(schema)
    note(f"sgl_kernel: its own Python over {len(schemas)} operators that have a schema and no kernel")
    loading = types.ModuleType("sgl_kernel.load_utils")
    loading._load_architecture_specific_ops = loading._preload_cuda_library = lambda: None
    sys.modules[loading.__name__] = loading


_PARENTS = ("cuda", "cuda.bindings")  # have modules below them, and nothing else


def stand_in_triton() -> None:
    """Have Triton ask a driver that only tells the declared GPU; its kernels are compiled by nobody here."""
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    major, minor = torch.cuda.get_device_capability()

    class Driver:
        def get_current_target(self):
            return GPUTarget("cuda", 10 * major + minor, 32)

        def get_current_device(self):
            return 0

        def get_current_stream(self, device=None):
            return 0

        def get_device_interface(self):
            return torch.cuda

        def get_active_torch_device(self):
            return torch.device("cuda", 0)

    driver.set_active(Driver())
    note("Triton's driver: tells the declared GPU, and runs nothing")


class _Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what is only there to call kernels, and makes modules of it that refuse."""

    def find_spec(self, name, path=None, target=None):
        if name in _PARENTS or any(name == absent or name.startswith(f"{absent}.") for absent in _ABSENT):
            return importlib.machinery.ModuleSpec(name, self, origin="workbook stand-in", is_package=True)
        return None

    def exec_module(self, module):
        whole = [one for one in _ABSENT if module.__name__.startswith(one)]  # its modules are told together
        if whole:
            note(f"{whole[0]}: modules whose functions refuse to be called")

        def attribute(name):
            if name.startswith("__") or module.__name__ in _PARENTS:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

            if name[0].isupper():
                setattr(module, name, type(name, (), {}))
                return getattr(module, name)

            def refuse(*_args, **_kwargs):
                raise NotImplementedError(f"{module.__name__}.{name} needs a GPU; this is a stand-in")

            refuse.__name__ = refuse.__qualname__ = name
            setattr(module, name, refuse)
            return refuse

        module.__getattr__ = attribute
        if module.__name__ == "deep_gemm":
            import torch

            count = torch.cuda.get_device_properties(0).multi_processor_count
            module.get_num_sms, module.set_num_sms = lambda: count, do_nothing
        if module.__name__.startswith("deep_gemm"):
            module.get_mn_major_tma_aligned_packed_ue8m0_tensor = packed_scales
            module.get_tma_aligned_size = aligned_size
            module.align = lambda count, unit: -(-count // unit) * unit
            module.ceil_div = lambda count, unit: -(-count // unit)


def packed_scales(scales):
    """The shape in which DeepGEMM's layout kernel leaves scales on Blackwell: four exponents to an int32."""
    import torch

    return scales.new_empty((*scales.shape[:-1], -(-scales.shape[-1] // 4)), dtype=torch.int32)


def aligned_size(count: int, element_size: int) -> int:
    """The next number of elements that fills whole units of 16 bytes, which the tensor memory accelerator asks for."""
    unit = 16 // element_size
    return -(-count // unit) * unit


class BuiltKernels:
    """A module that SGLang builds at run time: any of its functions does nothing."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return do_nothing


def do_nothing(*_args, **_kwargs) -> None:
    """A kernel where only shapes and dtypes matter."""


def import_sglang(server_args) -> None:
    """Import all of SGLang that the runner needs, outside of any fake mode, and stand in for the kernels it builds."""
    import sglang.srt.models.registry  # noqa: F401  # the models' files, whose code at import computes on tensors
    from sglang.srt.layers.moe import initialize_moe_config
    from sglang.srt.model_executor import model_runner  # noqa: F401
    from sglang.srt.model_loader import loader

    stand_in_triton()
    initialize_moe_config(server_args)
    for module, name in _INITIALISED:
        with suppress(ImportError, AttributeError):  # newer than the oldest version that is known
            getattr(importlib.import_module(module), name)(server_args)
    loader.initialize_dummy_weights = do_nothing
    note("weights: none, only their shapes")
    for name, module in list(sys.modules.items()):
        if name.startswith("sglang.jit_kernel") and hasattr(module, "load_jit"):
            module.load_jit = lambda *args, **kwargs: BuiltKernels()
    note("kernels that SGLang builds at run time: modules whose functions do nothing")


_INITIALISED = (
    ("sglang.srt.layers.quantization.fp4_utils", "initialize_fp4_gemm_config"),
    ("sglang.srt.layers.quantization.fp8_utils", "initialize_fp8_gemm_config"),
)


@contextmanager
def idle_kernels():
    """Within the block an eager call runs no kernel: those of Triton and FlashInfer do nothing."""
    import torch
    from triton.runtime.jit import JITFunction
    from workbook_overlay.kernels import stand_in as stand_in_modules

    run = JITFunction.run
    JITFunction.run = do_nothing
    try:
        # SGLang compiles a few small functions by themselves, with kernels of their own
        with stand_in_modules(), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        JITFunction.run = run
