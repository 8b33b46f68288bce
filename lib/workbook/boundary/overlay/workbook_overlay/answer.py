"""How a probe answers: one JSON value on standard output, whatever its imports print."""

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable


def answer(work: Callable[[], object]) -> int:
    """Print what `work` returns as JSON; everything printed meanwhile goes to standard error."""
    printed = os.dup(1)
    os.dup2(2, 1)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    result = work()
    with os.fdopen(printed, "w") as out:
        json.dump(result, out)
    return 0


def spec() -> dict:
    """The probe's only argument, a JSON object."""
    return json.loads(sys.argv[1])
