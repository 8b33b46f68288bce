"""The patch levels."""

from workbook.errors import UsageError
from workbook.types import PatchLevel

LEVELS = (
    PatchLevel(
        level=0,
        name="unpatched",
        changes="nothing",
        expected="fails: a subprocess and its thread lock",
        patches=(),
    ),
    PatchLevel(
        level=1,
        name="cuda-version",
        changes="the CUDA path and version are read without a subprocess",
        expected="fails: the JIT loader's clock (cold) or file system (warm)",
        patches=("cuda_version",),
    ),
    PatchLevel(
        level=2,
        name="jit-loading",
        changes="the JIT module is loaded before tracing and handed over as a constant",
        expected="fails: a foreign (C) function is called",
        patches=("cuda_version", "jit_loading"),
    ),
    PatchLevel(
        level=3,
        name="compiler-disable",
        changes="torch.compiler.disable on the quantizer",
        expected="fails: a graph break, which fullgraph forbids",
        patches=("compiler_disable",),
    ),
    PatchLevel(
        level=4,
        name="custom-op",
        changes="each call of the entry table is an opaque torch.library operator with a right fake",
        expected="passes; sparse attention stops at its indexer",
        patches=("custom_op",),
    ),
    PatchLevel(
        level=5,
        name="nsa-indexer",
        changes="level 4; sparse attention and its indexer are operators at which SGLang splits the graph",
        expected="passes, sparse attention too",
        patches=("custom_op", "nsa_indexer"),
    ),
)

#: Those that change what one call into FlashInfer meets; to it a level that patches SGLang besides is the one below.
CALL_LEVELS = tuple(one for one in LEVELS if "nsa_indexer" not in one.patches)


def level(number: int) -> PatchLevel:
    """The patch level of this number.

    Raises:
        UsageError: there is none.
    """
    if not 0 <= number < len(LEVELS):
        raise UsageError(f"No patch level {number};", f"allowed: 0 to {len(LEVELS) - 1}.")
    return LEVELS[number]
