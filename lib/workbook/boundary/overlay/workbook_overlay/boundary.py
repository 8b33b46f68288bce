"""An operator of torch.library around a function: which of its arguments can cross, and how.

Tensors, numbers, booleans, strings and dtypes cross as they are; an enum as its number; an argument that is a tensor or
a number as two. What cannot cross (a config object, a random generator) stays behind: the call may leave it at its
default, anything else is refused by name. An `out` argument makes a second overload, which writes into it. The object
of a method crosses as a number under which it is kept: a graph holds for that object alone.
"""

import enum
import inspect
import itertools
import types
import typing
import weakref
from collections.abc import Callable, Container
from dataclasses import dataclass

import torch

_PLAIN = {
    torch.Tensor: "Tensor",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    torch.dtype: "ScalarType",
}


#: Where a planned object, such as an attention wrapper, keeps its number, and the objects by number.
HANDLE = "_workbook_handle"
PLANNED: "weakref.WeakValueDictionary[int, object]" = weakref.WeakValueDictionary()


def number(planned: object) -> None:
    """Give an object the number by which its operator finds it."""
    if not hasattr(planned, HANDLE):
        setattr(planned, HANDLE, next(_NUMBERS))
        PLANNED[getattr(planned, HANDLE)] = planned


_NUMBERS = itertools.count()


_WRITTEN = (type(None), bool, int, float, str)  # defaults that a schema can write


@dataclass(frozen=True)
class Crossing:
    """How one parameter crosses: its pieces in the schema, how the caller gives them, how the body takes them back."""

    name: str
    pieces: tuple[tuple[str, str], ...]  # (name in the schema, type in the schema)
    given: tuple[str, ...]  # an expression of the caller's argument for each piece
    taken: str  # an expression of the pieces


def crossing(parameter: inspect.Parameter, declared: str | None) -> Crossing | None:
    """How a parameter crosses an operator's boundary; None where it cannot.

    Args:
        declared: its schema type, where the signature has no annotation that tells.
    """
    name = parameter.name
    if declared == "planned":  # the object itself stays here; a number that finds it crosses
        return Crossing(name, (("handle", "int"),), (f"{name}.{HANDLE}",), "_planned[handle]")
    if declared == "behind" or parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return None
    kind = declared or schema_type(parameter.annotation, parameter.default)
    if kind == "enum":
        return Crossing(name, ((name, "int"),), (f"{name}.value",), f"_enum_{name}({name})")
    if kind is None:
        return None
    if kind == "Tensor or tuple":
        return Crossing(
            name,
            ((name, "Tensor[]"),),
            (f"[{name}] if isinstance({name}, _Tensor) else list({name})",),
            f"{name}[0] if len({name}) == 1 else tuple({name})",
        )
    if kind.startswith("Tensor or "):
        other = kind.removeprefix("Tensor or ")
        is_tensor = f"isinstance({name}, _Tensor)"
        return Crossing(
            name,
            ((name, f"{other}?"), (f"{name}_tensor", "Tensor?")),
            (f"None if {is_tensor} else {name}", f"{name} if {is_tensor} else None"),
            f"{name} if {name}_tensor is None else {name}_tensor",
        )
    return Crossing(name, ((name, kind),), (name,), name)


def schema_type(annotation: object, default: object) -> str | None:
    """The schema type of an annotation: `Tensor?`, `Tensor or int`, `enum`; None for what an operator cannot carry."""
    if annotation is inspect.Parameter.empty:
        if default is inspect.Parameter.empty:
            return "Tensor"
        if default is None:
            return "Tensor?"
        annotation = type(default)
    if annotation in _PLAIN:
        return _PLAIN[annotation] + ("?" if default is None else "")
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return "enum" if all(isinstance(one.value, int) for one in annotation) else None
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return _PLAIN.get(type(inside[0]))
    if origin is list and inside == (torch.Tensor,):
        return "Tensor[]"
    if origin in (typing.Union, types.UnionType):
        members = [one for one in inside if one is not type(None)]
        if len(members) == 1:
            kind = schema_type(members[0], inspect.Parameter.empty)
            if kind == "enum":
                return kind if isinstance(default, enum.Enum) else None
            return kind and f"{kind.rstrip('?')}?"
        if len(members) == 2 and torch.Tensor in members:
            (other,) = (one for one in members if one is not torch.Tensor)
            if typing.get_origin(other) is tuple and type(None) not in inside:
                return "Tensor or tuple"
            return f"Tensor or {_PLAIN[other]}" if other in _PLAIN else None
    return None


def returned_type(annotation: object) -> str:
    """The schema type of what a function returns."""
    if annotation in (None, type(None)):
        return "()"
    if typing.get_origin(annotation) is tuple:
        return f"({', '.join('Tensor' for _ in typing.get_args(annotation))})"
    return "Tensor"


def listed(result: object) -> list:
    """One tensor or a tuple of them as a list."""
    return list(result) if isinstance(result, tuple | list) else [result]


def single(results: list) -> object:
    """The other way round: one tensor alone, several as a tuple."""
    return results[0] if len(results) == 1 else tuple(results)


class Boundary:
    """A function and the operator around it: schemas, the body on either side, and what takes the function's name.

    Args:
        function: the installed function.
        row: its row of the entry table: `types` and `returns` where the signature does not tell, `mutates`, `out`.

    Raises:
        TypeError: an argument without a default cannot cross.
    """

    def __init__(self, function: Callable, row: dict) -> None:
        self.function, self.row = function, row
        self.signature = inspect.signature(function, eval_str=True)
        declared = row.get("types", {})
        self.crossings = {
            name: crossing(one, declared.get(name)) for name, one in self.signature.parameters.items()
        }
        self.left_behind = [name for name, one in self.crossings.items() if one is None]
        for name in self.left_behind:
            one = self.signature.parameters[name]
            if one.default is inspect.Parameter.empty and one.kind is not inspect.Parameter.VAR_POSITIONAL:
                raise TypeError(f"argument {name} of {row['path']} cannot cross an operator's boundary")
        self.returns = row.get("returns") or returned_type(self.signature.return_annotation)
        self.one_or_more = self.returns == "Tensor or tuple"

    def schema(self, out: bool = False) -> str:
        """The operator's schema without its name; with `out`, that of the overload that writes into an argument."""
        mutated = (self.row["out"],) if out else tuple(self.row.get("mutates", ()))
        marks = {name: f"Tensor({letter}!)" for name, letter in zip(mutated, "abcdefgh", strict=False)}
        defaults = self._defaults(out)
        pieces = [
            f"{marks.get(name, kind)} {name}" + (f"={defaults[name]}" if name in defaults else "")
            for crossing in self._crossing(out)
            for name, kind in crossing.pieces
        ]
        returns = "Tensor[]" if self.one_or_more else self.returns
        returns = "()" if out and returns == "Tensor" else returns
        return f"({', '.join(pieces)}) -> {returns}"

    def _crossing(self, out: bool) -> list[Crossing]:
        skipped = None if out else self.row.get("out")
        return [one for name, one in self.crossings.items() if one is not None and name != skipped]

    def _defaults(self, out: bool) -> dict[str, str]:
        """The defaults of the last pieces, as a schema writes them: what is left at these is never handed over.

        Only plain values after the last tensor: an operator's cost grows with each argument that is.
        """
        found: dict[str, str] = {}
        for one in reversed(self._crossing(out)):
            default = self.signature.parameters[one.name].default
            if one.given != (one.name,) or "Tensor" in one.pieces[0][1] or not isinstance(default, _WRITTEN):
                break
            found[one.name] = f'"{default}"' if isinstance(default, str) else repr(default)
        return found

    def body(self, function: Callable, out: bool = False) -> Callable:
        """`function` as the operator calls it: pieces in the order of the schema."""
        crossings = self._crossing(out)
        if (
            not out
            and [one.name for one in crossings] == list(self.signature.parameters)
            and all(
                one.taken == one.name
                and self.signature.parameters[one.name].kind is not inspect.Parameter.KEYWORD_ONLY
                for one in crossings
            )
        ):
            return function  # nothing to convert: no frame of ours in between
        defaults = self._defaults(out)
        given = ", ".join(
            f"{name}=_default_{name}" if name in defaults else name
            for one in crossings
            for name, _ in one.pieces
        )
        handed = ", ".join(f"{one.name}={one.taken}" for one in crossings)
        call = f"_listed(_function({handed}))" if self.one_or_more else f"_function({handed})"
        if not out:
            call = f"return {call}"
        elif self.returns != "Tensor":  # an operator may not return what it was given: the first in a list
            call = f"return {call}[1:]"
        names = {"_function": function, "_listed": listed, "_planned": PLANNED}
        return self._compile(f"def body({given}):\n    {call}\n", names)["body"]

    def through(self, operator: Callable, operator_out: Callable | None = None) -> Callable:
        """A function with the original's signature that calls the operator."""
        lines = [f"def {self.function.__name__}({self._parameters()}):"]
        for name in self.left_behind:
            variadic = self.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            lines.append(
                f"    if {name if variadic else f'{name} is not _default_{name}'}: _refuse({name!r})"
            )
        out = self.row.get("out")
        if out and operator_out is not None:
            result = {"Tensor": out, "Tensor[]": f"[{out}, *rest]"}.get(
                self.returns, f"_single([{out}, *rest])"
            )
            lines.append(f"    if {out} is not None:\n        rest = _operator_out({self._given(True)})")
            lines.append(f"        return {result}")
        defaults = self._defaults(False)
        returned = "    return _single(_operator({}))" if self.one_or_more else "    return _operator({})"
        if defaults:
            lines.append(f"    if {' and '.join(f'{name} is _default_{name}' for name in defaults)}:")
            lines.append(f"    {returned.format(self._given(False, but=defaults))}")
        lines.append(returned.format(self._given(False)))
        names = {
            "_operator": operator,
            "_operator_out": operator_out,
            "_refuse": self._refuse,
            "_single": single,
        }
        return self._compile("\n".join(lines) + "\n", names)[self.function.__name__]

    def replacement(self, through: Callable) -> Callable:
        """What takes the function's name, with its signature and attributes: the operator where something traces.

        An eager call goes to the installed function as before, so that it does not pay for the boundary.

        Args:
            through: what calls the operator.
        """
        handed = ", ".join(
            f"*{name}"
            if one.kind is inspect.Parameter.VAR_POSITIONAL
            else f"{name}={name}"
            if one.kind is inspect.Parameter.KEYWORD_ONLY
            else name
            for name, one in self.signature.parameters.items()
        )
        source = (
            f"def {self.function.__name__}({self._parameters()}):\n"
            f"    if _is_compiling() or _dispatch_modes():\n        return _through({handed})\n"
            f"    return _function({handed})\n"
        )
        names = {
            "_function": self.function,
            "_through": through,
            "_is_compiling": torch.compiler.is_compiling,
            "_dispatch_modes": torch._C._len_torch_dispatch_stack,  # fake tensors, other tracers
        }
        made = self._compile(source, names)[self.function.__name__]
        made.__doc__, made.__module__ = self.function.__doc__, self.function.__module__
        made.__dict__ = self.function.__dict__  # shared: FlashInfer keeps a call's chosen backend there
        return made

    def _given(self, out: bool, but: Container[str] = ()) -> str:
        crossings = [one for one in self._crossing(out) if one.name not in but]
        return ", ".join(expression for one in crossings for expression in one.given)

    def _parameters(self) -> str:
        parts, keyword = [], False
        for name, one in self.signature.parameters.items():
            if one.kind is inspect.Parameter.VAR_POSITIONAL:
                parts.append(f"*{name}")
                keyword = True
                continue
            if one.kind is inspect.Parameter.KEYWORD_ONLY and not keyword:
                parts.append("*")
                keyword = True
            parts.append(name if one.default is inspect.Parameter.empty else f"{name}=_default_{name}")
        return ", ".join(parts)

    def _refuse(self, name: str) -> None:
        raise TypeError(
            f"{self.row['path']}: {name} cannot cross the operator's boundary; leave it at its default"
        )

    def _compile(self, source: str, names: dict) -> dict:
        for name, one in self.signature.parameters.items():
            names[f"_default_{name}"] = one.default
            names[f"_enum_{name}"] = type(one.default)
        names["_Tensor"] = torch.Tensor
        exec(compile(source, f"<operator around {self.row['path']}>", "exec"), names)
        return names
