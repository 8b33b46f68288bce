"""Why SGLang would not capture what it was asked to: its own rules, as its code states them, and what it logs."""

import ast
import copy
import linecache
import logging
import sys
from contextlib import contextmanager
from pathlib import Path

OFF = {"disable_piecewise_cuda_graph": True, "enable_piecewise_cuda_graph": False}


class Heard(logging.Handler):
    """Keeps what SGLang logs about piecewise graphs."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = " ".join(record.getMessage().split())
        if "piecewise" in line.lower() and line.startswith(("Disable", "Cuda graph is disabled")):
            self.lines.append(line)


@contextmanager
def heard():
    """Within the block, what SGLang says of switching piecewise graphs off is kept; yields the lines."""
    handler, logger = Heard(), logging.getLogger("sglang")
    level, disabled = logger.level, logging.root.manager.disable
    logging.disable(logging.NOTSET)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logging.disable(disabled)


@contextmanager
def watched(server_args_class):
    """Within the block, each time SGLang switches piecewise graphs off is noted; yields the reasons, in words."""
    reasons: list[str] = []
    plain = server_args_class.__setattr__

    def noting(self, name, value):
        before = getattr(self, name, None)
        plain(self, name, value)
        if name in OFF and value is OFF[name] and before is not None and before is not value:
            frame = sys._getframe(1)
            if frame.f_code.co_name != "__init__":  # what the command line said
                reasons.append(rule(frame.f_code.co_filename, frame.f_lineno))

    server_args_class.__setattr__ = noting
    try:
        yield reasons
    finally:
        del server_args_class.__setattr__
        if server_args_class.__setattr__ is not plain:
            server_args_class.__setattr__ = plain


def overruled(args) -> list[str]:
    """By which rules SGLang would switch piecewise graphs off, were they not enforced (0.5.12)."""
    if not getattr(args, "enforce_piecewise_cuda_graph", False):
        return []
    asked = copy.copy(args)
    asked.enforce_piecewise_cuda_graph = False
    with watched(type(asked)) as reasons:
        asked._handle_piecewise_cuda_graph()
    return [f"were it not enforced, SGLang would switch it off: {one}" for one in reasons]


def rule(file: str, line: int) -> str:
    """The condition under which a line is reached, as its source states it, with the place."""
    tree = ast.parse("".join(linecache.getlines(file)))
    around = [
        (node.lineno, test)
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        for branch, test in ((node.body, node.test), (node.orelse, ast.UnaryOp(ast.Not(), node.test)))
        if branch and branch[0].lineno <= line <= (branch[-1].end_lineno or 0)
    ]
    _, innermost = max(around, key=lambda one: one[0], default=(0, None))
    condition = " ".join(ast.unparse(innermost).split()) if innermost else "always"
    return f"{condition} ({Path(file).name}:{line})"
