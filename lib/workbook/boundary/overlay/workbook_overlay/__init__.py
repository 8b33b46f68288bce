"""What a Python process on a node gets on top of its installed packages. Nothing installed is ever written.

Three switches, read from the environment so that every spawned process inherits them:
`WORKBOOK_PATCH_LEVEL` (0 to 5) patches FlashInfer at import, and SGLang from 5 on; `WORKBOOK_CPU_SGLANG=1` lets
SGLang import on a machine without a GPU; `WORKBOOK_PIECES` names a file that is told what SGLang's compile step made
of each graph.
Standard library only until a target module is imported.
"""

import os

PATCH_LEVEL = "WORKBOOK_PATCH_LEVEL"
CPU_SGLANG = "WORKBOOK_CPU_SGLANG"
PIECES = "WORKBOOK_PIECES"


def activate() -> None:
    """Register the import hooks that the environment asks for."""
    if os.environ.get(CPU_SGLANG) == "1":
        from workbook_overlay import cpu_sglang

        cpu_sglang.activate()
    level = int(os.environ.get(PATCH_LEVEL) or 0)
    if level:
        from workbook_overlay import patches

        patches.activate(level)
    if file := os.environ.get(PIECES):
        from workbook_overlay import pieces

        pieces.activate(file)
