"""Ways past a function that Dynamo cannot trace, found from what the function did in an eager call.

A function that touched no tensor becomes the constant it returned. One that did becomes opaque: a single node of the
graph. Either way its code object is exchanged, so that every reference to it is reached: bound methods, properties,
closures, `from` imports. `restore` puts each one back.
"""

import gc
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SIMPLE = (type(None), bool, int, float, str, bytes)


@dataclass
class Seen:
    """What a function did in the eager call: its return values, and whether it took or gave a tensor."""

    code: types.CodeType
    returned: list = field(default_factory=list)
    tensors: bool = False


def holds_tensor(value: object, depth: int = 2) -> bool:
    """Whether a value is a tensor or a container of some."""
    import torch

    if isinstance(value, torch.Tensor):
        return True
    if depth and isinstance(value, list | tuple):
        return any(holds_tensor(one, depth - 1) for one in value)
    return bool(
        depth and isinstance(value, dict) and any(holds_tensor(one, depth - 1) for one in value.values())
    )


def is_library(file: str) -> bool:
    """Whether a file is neither the standard library's nor torch's: code that somebody could change."""
    path = Path(file)
    if "torch" in path.parts or not path.is_absolute():
        return False
    return "site-packages" in path.parts or not path.is_relative_to(Path(types.__file__).parent)


@contextmanager
def watch() -> Iterator[dict[types.CodeType, Seen]]:
    """Within the block, note what every library function takes and returns."""
    seen: dict[types.CodeType, Seen] = {}
    library: dict[str, bool] = {}

    def note(frame, event, argument):
        code = frame.f_code
        if event not in ("call", "return"):
            return
        if code.co_filename not in library:
            library[code.co_filename] = is_library(code.co_filename)
        if not library[code.co_filename]:
            return
        entry = seen.setdefault(code, Seen(code))
        if event == "call":
            entry.tensors = entry.tensors or any(holds_tensor(value) for value in frame.f_locals.values())
        else:
            entry.returned.append(argument)
            entry.tensors = entry.tensors or holds_tensor(argument)

    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)


def at(seen: dict[types.CodeType, Seen], file: str, name: str, line: int) -> Seen | None:
    """What was seen of the function that a frame of a stack names."""
    for code, entry in seen.items():
        lines = [number for _, _, number in code.co_lines() if number]
        if (code.co_filename, code.co_name) == (file, name) and min(lines) <= line <= max(lines):
            return entry
    return None


def one_value(returned: list) -> bool:
    """Whether all calls gave the same: the same object, or equal plain values."""
    first = returned[0]
    return all(one is first or (isinstance(first, SIMPLE) and one == first) for one in returned)


class Passed:
    """The functions whose code was exchanged, to be put back."""

    def __init__(self) -> None:
        self._saved: list[tuple[types.FunctionType, types.CodeType]] = []
        self._originals: list[types.FunctionType] = []  # ours, which must stay what they are

    def constant(self, seen: Seen) -> None:
        """From now on the function returns what it returned in the eager call."""
        value = seen.returned[0]
        self._exchange(seen.code, lambda name: value, "return {name}")

    def opaque(self, seen: Seen, around: Callable = lambda call: call) -> None:
        """From now on the function is one node of the graph; `around` wraps the original call."""
        import torch

        function = self._functions(seen.code)[0]
        original = types.FunctionType(
            seen.code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        original.__kwdefaults__ = function.__kwdefaults__
        self._originals.append(original)
        wrapped = around(original)

        def call(*args, **kwargs):
            return wrapped(*args, **kwargs)

        # where the node itself cannot be run, that is what stops the trace, under the function's name
        call.__name__, call.__qualname__ = seen.code.co_name, seen.code.co_qualname
        node = torch._dynamo.allow_in_graph(call)
        self._exchange(seen.code, lambda name: node, "return {name}({{call}})")

    def _functions(self, code: types.CodeType) -> list[types.FunctionType]:
        """The functions that have this code, or had it before it was exchanged."""
        have = [
            one
            for one in gc.get_referrers(code)
            if isinstance(one, types.FunctionType) and one.__code__ is code
        ]
        ours = {id(one) for one in self._originals}
        return [one for one in have if id(one) not in ours] + [one for one, old in self._saved if old is code]

    def _exchange(self, code: types.CodeType, make: Callable[[str], object], body: str) -> None:
        name = f"__workbook_{code.co_name}_{id(code):x}"
        for function in self._functions(code):
            function.__globals__[name] = make(name)
            if not any(saved is function for saved, _ in self._saved):
                self._saved.append((function, code))
            function.__code__ = forwarding_code(code, body.format(name=name))

    def restore(self) -> None:
        """Every function is itself again."""
        for function, code in self._saved:
            function.__code__ = code
        self._saved.clear()


def forwarding_code(code: types.CodeType, body: str) -> types.CodeType:
    """Code that does `body`, with the parameters, name, place and free variables of `code`.

    `{call}` in the body is the parameters as a call hands them on. Defaults stay with the function object.
    """
    given, handed = parameters(code)
    free = ", ".join(code.co_freevars)
    uses = f"\n        ({free},)" if free else ""
    body = body.format(call=handed)
    source = f"def outer({free}):\n    def inner({given}):\n        {body}{uses}\n    return inner\n"
    outer = next(
        one for one in compile(source, code.co_filename, "exec").co_consts if isinstance(one, types.CodeType)
    )
    inner = next(one for one in outer.co_consts if isinstance(one, types.CodeType))
    return inner.replace(
        co_name=code.co_name, co_qualname=code.co_qualname, co_firstlineno=code.co_firstlineno
    )


def parameters(code: types.CodeType) -> tuple[str, str]:
    """A function's parameters as its definition lists them, without defaults, and as a call hands them on."""
    names = list(code.co_varnames)
    positional, keyword = names[: code.co_argcount], names[code.co_argcount :][: code.co_kwonlyargcount]
    rest = names[code.co_argcount + code.co_kwonlyargcount :]
    given, handed = list(positional), list(positional)
    if code.co_posonlyargcount:
        given.insert(code.co_posonlyargcount, "/")
    if code.co_flags & inspect.CO_VARARGS:
        given.append(f"*{rest[0]}")
        handed.append(f"*{rest.pop(0)}")
    elif keyword:
        given.append("*")
    given += keyword
    handed += [f"{name}={name}" for name in keyword]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        given.append(f"**{rest[0]}")
        handed.append(f"**{rest[0]}")
    return ", ".join(given), ", ".join(handed)
