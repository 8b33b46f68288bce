"""Functions of a package read from its files: importing SGLang takes kernels that need not be there to show a patch."""

import ast
import importlib.util
from pathlib import Path


def file_of(module: str) -> Path | None:
    """The file of a dotted module in an installed package; None where it has none."""
    package, *inner = module.split(".")
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent.joinpath(*inner).with_suffix(".py")
    return file if file.is_file() else None


def source_of(file: Path, name: str) -> str | None:
    """The source of a function, or of a method as `Class.method`, decorators included, as `inspect` gives it."""
    text = file.read_text()
    node: ast.AST | None = ast.parse(text)
    for part in name.split("."):
        node = next((one for one in getattr(node, "body", []) if getattr(one, "name", None) == part), None)
    if node is None:
        return None
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
    return "".join(text.splitlines(keepends=True)[first - 1 : node.end_lineno])
