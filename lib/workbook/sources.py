"""SGLang's sources in a folder: all that a forecast needs of SGLang, without its dependencies and its kernels."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from workbook.folders import made_beside
from workbook.kernel_wheel import PACKAGE, operator_schemas, unpack_python
from workbook.node.base import NodeConnection
from workbook.node.pip import pip_install
from workbook.types import Stack
from workbook.wheelhouse.pins import read_lock
from workbook.wheelhouse.wheels import PLATFORMS, Target, WheelCache

SCHEMAS = "schemas.txt"
LINUX = Target("3.12")  # what the locks are for; kernel wheels there are the same for every Python
KERNEL_WHEELS = ("sgl-kernel", "sglang-kernel")  # the older name, the newer one

Say = Callable[[str], None]


@dataclass(frozen=True)
class Kernels:
    """The kernel wheel that a stack pins."""

    name: str
    version: Version

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def pinned_kernels(lock: Path) -> Kernels | None:
    """The kernel wheel of a lock; None for a stack without one, whose SGLang runs on the CPU."""
    pins = read_lock(lock, LINUX.environment)
    return next((Kernels(name, pins[name]) for name in KERNEL_WHEELS if name in pins), None)


def put_sources(
    node: NodeConnection, stack: Stack, kernels: Kernels, folder: Path, log: Path, on_step: Say
) -> None:
    """Make the folder: SGLang itself, its kernel wheel's Python, and the schemas of that wheel's operators.

    Args:
        log: where pip's output goes.
        on_step: called with a line for each package that pip turns to, and each library that is read.

    Raises:
        UsageError: pip finds no such version.
        WorkbookError: pip failed, or the kernel wheel has no schemas. Nothing half-made is left.
    """
    with made_beside(folder) as beside:
        # Linux's wheels on any machine: they are read, not run. Not compiled: most of it is never imported.
        how = ["--no-deps", "--no-compile", "--only-binary=:all:", *PLATFORMS]
        what = ["--target", str(beside / "site"), f"sglang=={stack.sglang}"]
        pip_install(node, [*how, *what], beside / "tmp", log, on_step)
        cache = WheelCache(node, LINUX, beside / "wheels", log=log, on_package=on_step)
        wheel = cache.fetch(kernels.name, kernels.version)
        unpack_python(wheel, beside / "site")
        schemas = operator_schemas(wheel, lambda name: on_step(f"Reading operator schemas in {name}"))
        (beside / "site" / PACKAGE / SCHEMAS).write_text("".join(f"{schema}\n" for schema in schemas))
