"""What upstream already does about the quantizer: an operator of FlashInfer's own, or SGLang's wrapper around it."""

import ast
import importlib.metadata
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

OPERATOR = "flashinfer::fp4_quantize"
SGLANG_WRAPPER = "srt/layers/quantization/fp4_utils.py"


def cures(module: ModuleType) -> list[str]:
    """Each cure that is installed, in words, with what is wrong with it. Reads sources; calls nothing.

    Args:
        module: FlashInfer's module that defines `fp4_quantize`.
    """
    return [cure for cure in (flashinfer_operator(module), sglang_wrapper()) if cure]


def flashinfer_operator(module: ModuleType) -> str:
    """FlashInfer's own operator (from 0.6.13), with a warning where its body passes arguments to the wrong places."""
    wrapper = operator_wrapper(ast.parse(inspect.getsource(module)))
    if wrapper is None:
        return ""
    version = importlib.metadata.version("flashinfer-python")
    found = f"FlashInfer {version} has torch.ops.{OPERATOR.replace('::', '.')}"
    wrong = misplaced(wrapper, list(inspect.signature(module.fp4_quantize).parameters))
    if wrong:
        told = ", ".join(f"{name} into {lands}" for name, lands in wrong)
        return f"{found}, but its body forwards {told}: do not call it"
    return found


def operator_wrapper(tree: ast.Module) -> ast.FunctionDef | None:
    """The function that is registered as FlashInfer's operator."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return next((one for one in functions if any(map(_registers, one.decorator_list))), None)


def _registers(decorator: ast.expr) -> bool:
    """Whether a decorator is `custom_op("flashinfer::fp4_quantize", ...)`."""
    if not isinstance(decorator, ast.Call) or not decorator.args:
        return False
    name = decorator.args[0]
    return (
        "custom_op" in ast.unparse(decorator.func)
        and isinstance(name, ast.Constant)
        and name.value == OPERATOR
    )


def misplaced(wrapper: ast.FunctionDef, parameters: list[str]) -> list[tuple[str, str]]:
    """Arguments that the wrapper hands on by position to a parameter of another name: (its name, where it lands)."""
    for node in ast.walk(wrapper):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "fp4_quantize":
            handed = [arg.id if isinstance(arg, ast.Name) else "" for arg in node.args]
            return [
                (name, lands)
                for name, lands in zip(handed, parameters, strict=False)
                if name not in ("", lands)
            ]
    return []


def sglang_wrapper() -> str:
    """SGLang's own operator around the quantizer (from 0.5.12)."""
    spec = importlib.util.find_spec("sglang")
    if spec is None or spec.origin is None:
        return ""
    file = Path(spec.origin).parent / SGLANG_WRAPPER
    text = file.read_text() if file.is_file() else ""
    if "register_custom_op" not in text or "fp4_quantize" not in text:
        return ""
    return f"SGLang {importlib.metadata.version('sglang')} calls the quantizer through an operator of its own"
