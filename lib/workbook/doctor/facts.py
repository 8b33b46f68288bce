"""What the doctor's probes say of a node. Its text comes from there, so it is cleaned as it is read.

Memory is GiB, disk GB of 10^9 bytes.
"""

from typing import Annotated, Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BeforeValidator, Field

from workbook.report.text import one_line
from workbook.types import Record

SHOWN_CHARS = 200


def _version(text: Any) -> Version | None:
    try:
        return None if text is None else Version(str(text))
    except InvalidVersion:
        return None


Text = Annotated[str, AfterValidator(lambda text: one_line(text, SHOWN_CHARS))]
ParsedVersion = Annotated[Version | None, BeforeValidator(_version)]


class _Facts(Record):
    model_config = Record.model_config | {"arbitrary_types_allowed": True}


class Holder(_Facts):
    """A process that holds memory of a GPU; what another container runs has no name here."""

    pid: int
    name: Text | None
    user: Text | None
    memory_gib: float | None


class GpuFacts(_Facts):
    """One GPU. `visible` tells whether CUDA_VISIBLE_DEVICES lets a program see it."""

    index: int
    uuid: Text
    name: Text
    compute_capability: tuple[int, int]
    memory_gib: float
    free_gib: float
    holders: tuple[Holder, ...]
    visible: bool


class Peers(_Facts):
    """Whether one GPU reads the memory of another, and whether by NVLink; None where NVML does not tell."""

    gpus: tuple[int, int]
    read: bool | None
    nvlink: bool | None


class Tool(_Facts):
    """A program that compilation needs: where it is or was looked for, its version, or what it said instead."""

    path: Text
    version: ParsedVersion
    error: Text | None


class ModelFacts(_Facts):
    """Where the model's folder is; `missing` counts the weight files that its index names and that are not there.

    `offline` says that nothing may be fetched from the hub.
    """

    path: Text | None
    weights_gib: float | None
    missing: int
    offline: bool


class FolderFacts(_Facts):
    """A folder that is there or would be made, and the file system that it is or would be on."""

    purpose: Text
    path: Text
    writable: bool
    file_system: Text | None
    noexec: bool
    free_gb: float


class Clock(_Facts):
    """How far the node's clock is ahead of this machine's, give or take `uncertainty_s`."""

    ahead_s: float
    uncertainty_s: float = Field(ge=0)


class NodeFacts(_Facts):
    """All that the checks go by."""

    clock: Clock
    gpus: tuple[GpuFacts, ...]
    gpu_error: Text | None
    gpus_on_bus: int
    driver: Text | None
    driver_cuda: ParsedVersion
    peers: tuple[Peers, ...]
    nvcc: Tool
    nvcc_named_by: Text
    newest_gcc: int | None
    ninja: Tool
    cxx: Tool
    link_error: Text | None
    python: Text
    packages: dict[Annotated[str, AfterValidator(canonicalize_name)], Text]
    flashinfer_folder: Text | None
    torch_cuda: ParsedVersion
    model: ModelFacts | None
    memory_gib: float
    available_gib: float
    shm_gib: float | None
    shm_free_gib: float | None
    files_soft: int | None
    files_hard: int | None
    free_port: bool
    default_port_free: bool
    folders: tuple[FolderFacts, ...]

    @property
    def visible(self) -> tuple[GpuFacts, ...]:
        """The GPUs that a program started there sees."""
        return tuple(gpu for gpu in self.gpus if gpu.visible)

    @property
    def flashinfer(self) -> Version | None:
        """FlashInfer's version: that of the environment, else of its folder beside it."""
        return _version(self.packages.get("flashinfer-python") or self.flashinfer_folder)
