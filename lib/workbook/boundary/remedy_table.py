"""The usual remedies, and their words; nothing is traced here."""

from workbook.boundary import diagnosis
from workbook.types import Remedy

REMEDIES = (
    Remedy(
        name="pre-warm",
        applied="one eager call before the trace, as a server makes; nothing else",
        risk="false confidence: Dynamo traces what functools.cache wraps and never asks the cache",
    ),
    Remedy(
        name="compiler-disable",
        applied="torch.compiler.disable on the quantizer",
        risk="a graph break at every call, which fullgraph forbids and piecewise capture cannot take",
    ),
    Remedy(
        name="assume-constant-result",
        applied="torch.compiler.assume_constant_result on a plain function around the JIT loader",
        risk="goes stale: the first value is used for good, without a guard",
    ),
    Remedy(
        name="allow-in-graph",
        applied="torch.compiler.allow_in_graph on the quantizer",
        risk="runs the real Python on fake tensors while tracing, side effects and all; no guards",
    ),
    Remedy(
        name="nonstrict-trace",
        applied="torch._dynamo.nonstrict_trace on the quantizer",
        risk="as allow_in_graph, and what is read from outside the arguments is not guarded",
    ),
    Remedy(
        name="substitute-in-graph",
        applied="torch.compiler.substitute_in_graph: an operator in the quantizer's place",
        risk="for the whole process and for good; eager and compiled code are no longer the same",
    ),
    Remedy(
        name="is-compiling",
        applied="if torch.compiler.is_compiling() at the call: an operator, else the quantizer",
        risk="only calls that have the branch are cured; an eager test never runs what is compiled",
    ),
    Remedy(
        name="custom-op-decorator",
        applied="torch.library.custom_op on the quantizer, and a fake",
        risk="a wrong fake passes unseen",
    ),
    Remedy(
        name="custom-op-define",
        applied="Library.define and impl around the quantizer, and a fake; as patch level 4",
        risk="a wrong fake passes unseen, and so does a kernel that hands back its input",
    ),
)


def one_line(message: str) -> str:
    """The first line of what an exception says, without a trailing colon."""
    return diagnosis.explanation(message).partition("\n")[0].rstrip(": ")
