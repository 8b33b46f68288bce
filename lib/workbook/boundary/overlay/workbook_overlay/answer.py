"""How a probe answers: one JSON value on the last line of standard output, whatever was printed before."""

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable

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
    result = work()
    with os.fdopen(printed, "w") as out:
        out.write("\n" + json.dumps(result))
    return 0


def spec() -> dict:
    """The probe's only argument, a JSON object."""
    return json.loads(sys.argv[1])
