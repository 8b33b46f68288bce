"""How a probe answers: one JSON value on the last line of standard output, whatever was printed before."""

import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable

OLDEST_TORCH = (2, 9)  # of those whose Dynamo the workbook was written against
# Each of these changes what Dynamo or FlashInfer does, and so the question. CUDA_HOME is recorded instead.
UNWANTED = ("TORCHDYNAMO_", "TORCH_COMPILE_", "TORCH_LOGS", "FLASHINFER_LOG", "FLASHINFER_CUDA_ARCH_LIST")


def answer(work: Callable[[], object]) -> int:
    """Print what `work` returns as JSON; everything printed meanwhile goes to standard error."""
    printed = os.dup(1)
    os.dup2(2, 1)
    for name in [name for name in os.environ if name.startswith(UNWANTED)]:
        del os.environ[name]
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    check_torch()
    result = work()
    with os.fdopen(printed, "w") as out:
        out.write("\n" + json.dumps(result))
    return 0


class TorchTooOld(ImportError):
    """This torch is older than any whose Dynamo the workbook knows."""


def check_torch() -> None:
    """Nothing, if torch is there and not too old."""
    import torch

    version = getattr(torch, "__version__", "of no version")
    numbers = tuple(int(number) for number in re.findall(r"\d+", str(version))[:2])
    if numbers < OLDEST_TORCH:
        oldest = ".".join(str(number) for number in OLDEST_TORCH)
        raise TorchTooOld(f"torch {version} is too old: the workbook knows torch {oldest} and newer.")


def spec() -> dict:
    """The probe's only argument, a JSON object."""
    return json.loads(sys.argv[1])
