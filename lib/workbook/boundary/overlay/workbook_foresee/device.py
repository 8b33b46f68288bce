"""GPUs that are not there: what torch is told of them, below `torch.cuda`, before anything else is imported.

The bindings under `torch.cuda` are stood in for, not its functions, which Dynamo knows by name. Tensors of such a
device have to be fake; whatever would reach a driver fails.
"""

import ctypes
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workbook_overlay.declare import ARCHS, DEFAULT_CUDA, told

CUDA_DEVICE_TYPE, META_DEVICE_TYPE = 1, 14  # c10/core/DeviceType.h
DEVICE_TYPES, METHODS = 22, 24
GUARDS = "_ZN3c104impl26device_guard_impl_registryE"  # c10::impl::device_guard_impl_registry


@dataclass(frozen=True)
class Gpu:
    """One GPU model: its name, memory in GiB, and multiprocessors."""

    name: str
    memory_gib: int
    multiprocessors: int
    shared_kib: int  # that one block may ask for


#: One well-known GPU of each architecture, as its vendor's data sheet and the CUDA guide describe it.
GPUS: Mapping[str, Gpu] = {
    "sm90": Gpu("NVIDIA H200", 141, 132, 227),
    "sm100": Gpu("NVIDIA B200", 180, 148, 227),
    "sm103": Gpu("NVIDIA B300", 268, 148, 227),
    "sm110": Gpu("NVIDIA Thor", 122, 20, 227),
    "sm120": Gpu("NVIDIA RTX PRO 6000 Blackwell Server Edition", 95, 188, 99),
    "sm121": Gpu("NVIDIA GB10", 119, 48, 99),
}


class Properties:
    """What stands for torch's device properties."""

    def __init__(self, gpu: Gpu, capability: tuple[int, int]) -> None:
        self.name = gpu.name
        self.major, self.minor = capability
        self.total_memory = gpu.memory_gib << 30
        self.multi_processor_count = gpu.multiprocessors
        self.shared_memory_per_block = 48 << 10
        self.shared_memory_per_block_optin = gpu.shared_kib << 10
        self.shared_memory_per_multiprocessor = (gpu.shared_kib + 1) << 10
        self.max_threads_per_multi_processor = 2048 if self.major in (9, 10) else 1536
        self.regs_per_multiprocessor = 65536
        self.warp_size = 32
        self.L2_cache_size = 50 << 20
        self.is_integrated = 0
        self.gcnArchName = ""
        self.uuid = "declared"


def declare_gpus(arch: str, count: int) -> dict:
    """Have torch believe in `count` GPUs of an architecture; what was declared, for the record.

    Args:
        arch: a key of `GPUS`.
        count: how many GPUs the node has.
    """
    os.environ["FLASHINFER_CUDA_ARCH_LIST"] = "{}.{}a".format(*ARCHS[arch])
    import torch

    capability, gpu = ARCHS[arch], GPUS[arch]
    properties = Properties(gpu, capability)
    source = "installed"
    if torch.version.cuda is None:
        torch.version.cuda, source = DEFAULT_CUDA, "declared"
    # ahead of the import of torch._dynamo, which keeps what it finds here
    torch.cuda._CudaDeviceProperties = Properties
    for name, binding in _bindings(capability, count).items():
        setattr(torch._C, name, binding)
    torch.cuda._initialized = True  # else torch.cuda would initialise itself, with a driver
    torch.cuda._queued_calls = []
    torch.cuda._get_device_properties = lambda device=0: properties
    torch.cuda.device_count = functools.lru_cache(lambda: count)  # the original asks NVML first
    torch.cuda.mem_get_info = lambda device=None: (properties.total_memory, properties.total_memory)
    torch.cuda.Stream, torch.cuda.Event = Stream, Event
    torch.cuda.current_stream = lambda device=None: Stream()
    torch.cuda.default_stream = lambda device=None: Stream()
    torch.cuda.synchronize = lambda device=None: None
    torch.cuda._exchange_device = lambda device: 0
    torch.cuda._maybe_exchange_device = lambda device: 0
    torch.cuda.graph_pool_handle = lambda: (0, 1)
    random_state = torch.empty(16, dtype=torch.uint8)
    torch.cuda.get_rng_state = lambda device="cuda": random_state
    torch.cuda.set_rng_state = lambda state, device="cuda": None
    _guard_without_driver(Path(torch.__file__).parent / "lib" / "libc10.so")
    from torch._subclasses import fake_tensor

    # else a fake tensor is first made on the device
    fake_tensor.init_gpu_context = lambda device: None
    fake_tensor.FakeTensorMode.avoid_device_init = property(lambda self: True)
    return told(capability, source)


def _bindings(capability: tuple[int, int], count: int) -> dict[str, object]:
    def nothing(*_args):
        return None

    def device(*_args):
        return 0

    return {
        "_cuda_getDeviceCount": lambda: count,
        "_cuda_getDevice": device,
        "_cuda_setDevice": nothing,
        "_cuda_exchangeDevice": device,
        "_cuda_maybeExchangeDevice": device,
        "_cuda_synchronize": nothing,
        "_cuda_emptyCache": nothing,
        "_cuda_init": nothing,
        "_cuda_isInBadFork": lambda: False,
        "_cuda_getCurrentRawStream": device,
        "_cuda_getCurrentStream": lambda *_args: (0, 0, 1),
        "_cuda_getDefaultStream": lambda *_args: (0, 0, 1),
        "_cuda_setStream": nothing,
        "_cuda_getArchFlags": lambda: "sm_{}{}".format(*capability),
        "_cuda_canDeviceAccessPeer": lambda *_args: True,
        "_cuda_memoryStats": lambda *_args: {},
        "_cuda_resetPeakMemoryStats": nothing,
        "_cuda_beginAllocateCurrentThreadToPool": nothing,
        "_get_cublas_allow_tf32": lambda: False,
    }


def _guard_without_driver(library: Path) -> None:
    """Have operators on CUDA tensors change devices without a driver: the current device is always number 0.

    A torch built without CUDA has no guard for its devices, one with CUDA has one that asks the driver; either way
    even a fake tensor's `copy_` would fail. The guard here is that of meta tensors, which does nothing, but for the
    methods that tell the device (c10/core/impl/DeviceGuardImplInterface.h, torch 2.9 to 2.14).
    """
    table = (ctypes.c_void_p * DEVICE_TYPES).in_dll(ctypes.CDLL(str(library)), GUARDS)
    idle = ctypes.cast(table[META_DEVICE_TYPE], ctypes.POINTER(ctypes.c_void_p))
    methods = (ctypes.c_void_p * METHODS)(*ctypes.cast(idle[0], ctypes.POINTER(ctypes.c_void_p))[:METHODS])
    tell_type = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)(lambda _self: CUDA_DEVICE_TYPE)
    # a c10::Device is two bytes, its type and its index
    tell_device = ctypes.CFUNCTYPE(ctypes.c_uint16, ctypes.c_void_p, ctypes.c_uint16)(
        lambda _self, _device: CUDA_DEVICE_TYPE
    )
    methods[0] = ctypes.cast(tell_type, ctypes.c_void_p)  # type
    methods[1] = methods[2] = ctypes.cast(tell_device, ctypes.c_void_p)  # exchangeDevice, getDevice
    guard = ctypes.pointer(ctypes.cast(methods, ctypes.c_void_p))
    table[CUDA_DEVICE_TYPE] = ctypes.cast(guard, ctypes.c_void_p).value
    _KEPT.extend([methods, tell_type, tell_device, guard])


_KEPT: list[object] = []  # torch holds on to them until the process ends


class Stream:
    """A CUDA stream on which nothing ever runs."""

    cuda_stream = stream_id = device_index = 0
    device_type = CUDA_DEVICE_TYPE

    def __init__(self, *_args, **_kwargs) -> None:
        import torch

        self.device = torch.device("cuda:0")

    def __enter__(self):
        return self

    def __exit__(self, *_args) -> None:
        pass

    def _nothing(self, *_args, **_kwargs) -> None:
        pass

    wait_stream = wait_event = synchronize = record_event = _nothing


class Event(Stream):
    """A CUDA event that has always happened."""

    record = wait = Stream._nothing

    def query(self) -> bool:
        return True
