"""An exception of Dynamo as plain data: its words, its graph-break type and the frames of user code."""

import sys
from pathlib import Path


def roots() -> list[str]:
    """The folders of sys.path, innermost first."""
    found = {str(Path(entry).resolve()) for entry in sys.path if entry}
    return sorted(found - {"/"}, key=len, reverse=True)


def without_roots(text: str) -> str:
    """A message without the folders of this machine in which the code lies: Dynamo may quote whole paths."""
    for root in roots():
        text = text.replace(f"{root}/", "")
    return text


def relative(path: str) -> str:
    """`path` from the innermost entry of sys.path on, so that no folder of this machine is told on.

    The probe itself is its bare name: it stands for the model that makes the call.
    """
    if Path(path).resolve() == Path(sys.argv[0]).resolve():
        return Path(path).name
    resolved = str(Path(path).resolve())
    for root in roots():
        if resolved.startswith(root + "/"):
            return resolved[len(root) + 1 :]
    return Path(path).name


def explain(error: BaseException) -> dict:
    """Type, message, `gb_type` and stack of an exception raised while compiling."""
    stack = getattr(error, "real_stack", None) or ()
    return {
        "type": f"{type(error).__module__}.{type(error).__qualname__}",
        "message": without_roots(str(error)),
        "gb_type": getattr(error, "gb_type", None),
        "stack": [
            {"file": relative(at.filename), "line": at.lineno, "function": at.name, "code": at.line or ""}
            for at in stack
        ],
    }
