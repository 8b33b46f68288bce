"""What crosses an operator's boundary and what stays behind, on small functions of the test's own.

Their annotations are written as FlashInfer writes them.
"""

# ruff: noqa: E402, UP006, UP007, UP035, UP045

import enum
import inspect
import itertools
import sys
from typing import List, Literal, Optional, Tuple, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbook.paths import OVERLAY

torch = pytest.importorskip("torch")
sys.path.insert(0, str(OVERLAY))
from torch._subclasses.fake_tensor import FakeTensorMode
from workbook_overlay.boundary import Boundary, number

pytestmark = pytest.mark.slow

LIBRARY = torch.library.Library("workbook_test", "FRAGMENT")
NUMBERS = itertools.count()
Tensor = torch.Tensor
X = torch.arange(4.0)


def bounded(function, **row):
    return Boundary(function, {"path": f"test.{function.__name__}", **row})


def opaque(function, **row):
    """What calls the operator, on CPU tensors, with the function itself as its fake."""
    boundary, name, operators = bounded(function, **row), f"operator{next(NUMBERS)}", []
    for overload in ("", ".out") if "out" in row else ("",):
        LIBRARY.define(name + overload + boundary.schema(bool(overload)))
        body = boundary.body(function, bool(overload))
        LIBRARY.impl(name + overload, body, "CPU")
        torch.library.register_fake(f"workbook_test::{name}{overload}", body, lib=LIBRARY)
        operators.append(getattr(getattr(torch.ops.workbook_test, name), overload[1:] or "default"))
    return boundary.through(*operators)


class Layout(enum.Enum):
    LINEAR = 0
    SWIZZLED = 3


def with_enum(x, layout=Layout.LINEAR):
    assert isinstance(layout, Layout)
    return x + layout.value


def test_an_enum_crosses_as_its_number():
    assert bounded(with_enum).schema() == "(Tensor x, int layout) -> Tensor"
    assert torch.equal(opaque(with_enum)(X, Layout.SWIZZLED), X + 3)
    assert torch.equal(opaque(with_enum)(X), X)


def with_either(x, k: Union[Tensor, int], scale: Optional[Union[Tensor, float]] = None):
    return x + k if scale is None else (x + k) * scale


@pytest.mark.parametrize("k", [2, torch.full((4,), 2.0)])
@pytest.mark.parametrize("scale", [None, 3.0, torch.full((4,), 3.0)])
def test_a_tensor_or_a_number_crosses_as_two(k, scale):
    assert "int? k, Tensor? k_tensor, float? scale, Tensor? scale_tensor" in bounded(with_either).schema()
    assert torch.equal(opaque(with_either)(X, k, scale), with_either(X, k, scale))


class Config:
    pass


def with_config(x, config: Optional[Config] = None, *, by: int = 1):
    return x * by if config is None else x


def test_what_cannot_cross_is_left_at_its_default_or_refused_by_name():
    replaced = opaque(with_config)
    assert torch.equal(replaced(X, by=5), X * 5)
    assert torch.equal(replaced(X, None), X)
    with pytest.raises(TypeError, match=r"test\.with_config: config cannot cross the operator's boundary"):
        replaced(X, Config())


def needs_config(x, config: Config):
    return x


def test_a_function_that_needs_what_cannot_cross_gets_no_operator():
    with pytest.raises(TypeError, match=r"argument config of test\.needs_config cannot cross"):
        bounded(needs_config)


def with_more(x, *more):
    return x + len(more)


def test_further_arguments_are_refused_only_when_given():
    assert torch.equal(opaque(with_more)(X), X)
    with pytest.raises(TypeError, match="more cannot cross"):
        opaque(with_more)(X, 1)


def keyword_only(x, *, kind: Literal["add", "multiply"] = "add", by: float = 2.0):
    return x + by if kind == "add" else x * by


def test_keyword_only_arguments_stay_so():
    replaced = opaque(keyword_only)
    assert torch.equal(replaced(X, kind="multiply"), X * 2)
    assert torch.equal(replaced(X), X + 2)
    with pytest.raises(TypeError, match="positional"):
        replaced(X, "multiply")


def with_out(x, by: int = 2, out: Optional[Tensor] = None, *, add: bool = False) -> Tensor:
    out = torch.empty_like(x) if out is None else out
    return out.copy_(x + by if add else x * by)


def test_an_out_argument_is_written_and_returned():
    replaced, out = opaque(with_out, out="out"), torch.zeros(4)
    assert replaced(X, 3, out) is out
    assert torch.equal(out, X * 3)
    assert replaced(X, out=out, add=True) is out
    assert torch.equal(out, X + 2)
    assert torch.equal(replaced(X), X * 2)


def several(x, n: int, output: Optional[Tensor] = None) -> List[Tensor]:
    output = torch.empty_like(x) if output is None else output
    return [output.copy_(x), *(x + one for one in range(1, n))]


def test_a_list_of_results_and_one_of_them_given():
    replaced, output = opaque(several, returns="Tensor[]", out="output"), torch.zeros(4)
    assert [one.tolist() for one in replaced(X, 3)] == [(X + one).tolist() for one in range(3)]
    first, *others = replaced(X, 3, output)
    assert first is output and torch.equal(output, X)
    assert [one.tolist() for one in others] == [(X + 1).tolist(), (X + 2).tolist()]


def one_or_two(x, pair: Union[Tensor, Tuple[Tensor, Tensor]], both: bool = False):
    k, v = pair if isinstance(pair, tuple) else (pair, pair)
    return (x + k, x + v) if both else x + k


@pytest.mark.parametrize("pair", [X, (X, 2 * X)])
@pytest.mark.parametrize("both", [False, True])
def test_one_tensor_or_a_tuple_either_way(pair, both):
    found = opaque(one_or_two, returns="Tensor or tuple")(X, pair, both)
    expected = one_or_two(X, pair, both)
    assert isinstance(found, tuple) is both
    assert torch.equal(torch.stack(found) if both else found, torch.stack(expected) if both else expected)


def in_place(x, residual, weight, eps: float = 0.5) -> None:
    residual += x
    x.copy_(residual * weight + eps)


def test_what_is_written_in_place_is_written_under_compilation_too():
    replaced = opaque(in_place, mutates=["x", "residual"])
    assert (
        bounded(in_place, mutates=["x", "residual"])
        .schema()
        .startswith("(Tensor(a!) x, Tensor(b!) residual,")
    )
    expected = [X.clone(), X + 1]
    in_place(*expected, X)
    for call in (replaced, torch.compile(replaced, fullgraph=True, backend="aot_eager")):
        found = [X.clone(), X + 1]
        assert call(*found, X) is None
        assert torch.equal(torch.stack(found), torch.stack(expected))


class Wrapper:
    def __init__(self, by):
        self.by = by

    def run(self, x):
        return x * self.by


def test_each_planned_object_is_found_by_its_number():
    planned = [Wrapper(2), Wrapper(3)]
    for one in (*planned, planned[0]):
        number(one)
    run = opaque(Wrapper.run, types={"self": "planned"})
    assert [run(one, X).tolist() for one in planned] == [(X * 2).tolist(), (X * 3).tolist()]


@pytest.mark.parametrize("function", [with_enum, with_either, with_config, with_more, keyword_only, with_out])
def test_the_replacement_keeps_signature_name_and_attributes(function):
    row = {"out": "out"} if function is with_out else {}
    replaced = bounded(function, **row).replacement(opaque(function, **row))

    def shape(one):
        return [(name, each.kind, each.default) for name, each in inspect.signature(one).parameters.items()]

    assert shape(replaced) == shape(function)
    assert (replaced.__name__, replaced.__module__) == (function.__name__, function.__module__)
    replaced.kept = object()
    assert function.kept is replaced.kept


@pytest.mark.parametrize(
    ("call", "args"),
    [
        (opaque(with_enum), (Layout.SWIZZLED,)),
        (opaque(with_either), (2, 3.0)),
        (opaque(with_either), (X, None)),
        (opaque(with_config), ()),
        (opaque(keyword_only), ()),
        (opaque(with_out, out="out"), (3,)),
        (opaque(several, returns="Tensor[]"), (3,)),
        (opaque(one_or_two, returns="Tensor or tuple"), ((X, X), True)),
    ],
)
def test_all_of_it_traces_to_one_operator(call, args):
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(lambda x: call(x, *args), fullgraph=True, backend=backend)
    found, expected = compiled(X), call(X, *args)
    (graph,) = graphs
    targets = [node.target for node in graph.graph.nodes if "workbook_test" in str(node.target)]
    assert len(targets) == 1
    assert torch.equal(torch.stack(list(found)), torch.stack(list(expected)))


@pytest.mark.parametrize(
    ("function", "args", "options"),
    [(with_enum, (X, Layout.SWIZZLED), {}), (keyword_only, (X,), {"by": 3.0}), (with_more, (X, 1, 2), {})],
)
def test_the_replacement_hands_on_what_it_was_given_to_the_function_or_the_operator(function, args, options):
    replaced = bounded(function).replacement(lambda *args, **kwargs: ("operator", args, kwargs))
    assert torch.equal(replaced(*args, **options), function(*args, **options))
    with FakeTensorMode(allow_non_fake_inputs=True):
        called, handed, _ = replaced(*args, **options)
    assert called == "operator" and handed[: len(args)] == args
    assert torch.compile(replaced, fullgraph=True, backend="eager")(*args, **options)[0] == "operator"


SEEN = []


def plain(x, a: bool = True, b: int = 7, c: float = 1e-6, d: str = "auto", e: Optional[int] = None):
    SEEN.append((a, b, c, d, e))
    return x.clone()


PLAIN = opaque(plain)


@given(
    st.tuples(
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.text(st.characters(codec="utf-8")),
        st.none() | st.integers(-(2**63), 2**63 - 1),
    ),
    st.integers(0, 5),
)
def test_plain_values_cross_unchanged_and_defaults_are_the_functions_own(values, given_number):
    SEEN.clear()
    PLAIN(X, *values[:given_number])
    assert [(values[:given_number] + (True, 7, 1e-6, "auto", None)[given_number:])] == SEEN


def adds(x, by: int = 1):
    adds.calls += 1
    return x + by


adds.calls = 0


def test_an_eager_call_is_the_functions_own_and_a_traced_one_the_operators():
    adds.calls = 0
    through = opaque(adds)
    replaced = bounded(adds).replacement(through)
    assert torch.equal(replaced(X, by=2), X + 2) and adds.calls == 1
    assert replaced.__dict__ is adds.__dict__
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    assert torch.equal(torch.compile(replaced, fullgraph=True, backend=backend)(X), X + 1)
    (called,) = [node.target for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert called.namespace == "workbook_test"
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function.namespace)
            return function(*args, **kwargs or {})

    seen = []
    with Seen():
        replaced(X)
    with FakeTensorMode() as mode:
        assert replaced(mode.from_tensor(X)).shape == (4,)
    assert seen == ["workbook_test"]
