"""Apply one remedy to FlashInfer's FP4 quantizer, trace the call under fullgraph, and print a JSON object.

    PYTHONPATH=<overlay>:<FlashInfer's folder> python -P remedies.py \
        '{"remedy": "allow-in-graph", "entry": "flashinfer.fp4_quantize", "arch": "sm120"}'

With `"costs": [NAME, ...]` instead of a remedy: what a call costs over the bare one, on CPU tensors. The process is
warm, as a server is when it captures: one eager call went before, around a kernel that does nothing. A remedy is a
generator: first what the model calls, then what was observed after the trace: words, or words and another trace.
"""

import functools
import inspect
import sys

from workbook_overlay.answer import answer, spec
from workbook_overlay.call import make_inputs, resolve, shapes, versions
from workbook_overlay.quantizer import LOADER

NOTE = (
    "did nothing in the eager call, which took meta tensors; when traced, its functions are real tvm_ffi.Function "
    "objects without a kernel"
)


def trace(quantizer, entry) -> dict:
    """What Dynamo makes of a model that calls `entry`, whatever it knows of other models."""
    import torch
    from workbook_overlay import tracing

    torch._dynamo.reset()

    def forward(*args):
        return entry(*args)

    return tracing.trace(forward, quantizer.inputs)


def pre_warm(quantizer):
    before = quantizer.loader.cache_info()
    yield quantizer.function
    asked = quantizer.loader.cache_info().hits - before.hits
    yield f"the loader's cache held {before.currsize} module; the trace used it {asked} times"


def compiler_disable(quantizer):
    import torch

    disabled, graphs = torch.compiler.disable(quantizer.function), []
    yield disabled

    def backend(graph, _example_inputs):
        graphs.append(graph)
        return graph.forward

    def forward(rows, *args):
        values, scales = without_kernel(rows + 1, *args)
        return values + 1, scales

    without_kernel = torch.compiler.disable(quantizer.fake)
    torch.compile(forward, backend=backend)(*quantizer.inputs)
    yield f"without fullgraph a model with one call falls into {len(graphs)} graphs around an eager call"


def assume_constant_result(quantizer):
    import torch

    loader, returned = quantizer.loader, [1]

    def load(*args):
        return loader(*args)

    setattr(quantizer.module, LOADER, torch.compiler.assume_constant_result(load))
    yield quantizer.function
    setattr(quantizer.module, LOADER, torch.compiler.assume_constant_result(loader))
    yield (
        "on the cached loader itself, as one would write it, the trace",
        trace(quantizer, quantizer.function),
    )
    marked = torch.compiler.assume_constant_result(lambda: returned[0])
    compiled = torch.compile(lambda rows: rows.new_empty(marked()), fullgraph=True, backend="eager")
    compiled(quantizer.inputs[0])
    returned[0] = 2
    used = compiled(quantizer.inputs[0]).shape[0]
    yield f"a marked function that returned 1 and then returns {marked()}: the compiled call uses {used}"


def allow_in_graph(quantizer):
    import torch

    yield from behind(torch.compiler.allow_in_graph, quantizer)


def nonstrict_trace(quantizer):
    import torch

    yield from behind(torch._dynamo.nonstrict_trace, quantizer)


def behind(decorator, quantizer):
    """Both run the function on fake tensors while tracing: count that, and try without the kernel."""
    given = []

    @functools.wraps(quantizer.function)
    def counted(*args, **kwargs):
        given.append(type(args[0]).__name__)
        return quantizer.function(*args, **kwargs)

    entry = decorator(counted)
    yield entry
    yield f"calls of the quantizer's own Python while tracing: {len(given)}, on {given[0] if given else 'nothing'}"
    with quantizer.quiet_kernels():
        yield "over a kernel that takes fake tensors and does nothing, the trace", trace(quantizer, entry)


def substitute_in_graph(quantizer):
    import torch

    operator = quantizer.operator

    def through_operator(*args, **kwargs):
        return operator(*args, **kwargs)

    substitute = torch.compiler.substitute_in_graph
    substitute(quantizer.function)(through_operator)
    yield quantizer.function
    yield "after torch._dynamo.reset() the same call", trace(quantizer, quantizer.function)
    yield f"a second substitute: {refusal(lambda: substitute(quantizer.function)(lambda *a, **k: None))}"
    yield f"on the JIT loader: {refusal(lambda: substitute(quantizer.loader)(lambda *a, **k: None))}"


def is_compiling(quantizer):
    import torch

    operator, function = quantizer.operator, quantizer.function

    def branch(*args):
        if torch.compiler.is_compiling():
            return operator(*args)
        return function(*args)

    yield branch
    yield "a call without the branch", trace(quantizer, function)


def custom_op_decorator(quantizer):
    import torch

    yield quantizer.decorated("decorated", quantizer.fake)
    yield wrong_fake(quantizer, quantizer.decorated("half_decorated", quantizer.fake_of_half))

    def same(x: torch.Tensor) -> torch.Tensor:
        return x

    yield aliasing(torch.library.custom_op("workbook_remedy::same_decorated", same, mutates_args=()))


def custom_op_define(quantizer):
    import torch

    yield quantizer.operator
    yield wrong_fake(quantizer, quantizer.defined("half_defined", quantizer.fake_of_half))
    quantizer.library.define("same_defined(Tensor x) -> Tensor")
    quantizer.library.impl("same_defined", lambda x: x, "CompositeExplicitAutograd")
    yield aliasing(torch.ops.workbook_remedy.same_defined.default)


def wrong_fake(quantizer, operator) -> tuple:
    """Whether anything notices a fake that is wrong."""
    found = trace(quantizer, operator)
    said = (found["output_shapes"] or ["nothing"])[0]
    return f"with a fake for half the rows ({said}, really {quantizer.eager_shapes[0]}) the trace", found


def aliasing(operator) -> str:
    """Whether an operator may hand back its input, which its schema denies."""
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    with unset_fake_temporarily():
        return f"a kernel that returns its input: {refusal(lambda: operator(torch.ones(1)))}"


def refusal(act) -> str:
    """The exception that `act` ends with, in a few words."""
    try:
        act()
    except Exception as error:
        return f"refused, {type(error).__name__}"
    return "not refused"


REMEDIES = {
    "pre-warm": pre_warm,
    "compiler-disable": compiler_disable,
    "assume-constant-result": assume_constant_result,
    "allow-in-graph": allow_in_graph,
    "nonstrict-trace": nonstrict_trace,
    "substitute-in-graph": substitute_in_graph,
    "is-compiling": is_compiling,
    "custom-op-decorator": custom_op_decorator,
    "custom-op-define": custom_op_define,
}


def compare(asked: dict) -> dict:
    """The trace with one remedy, and what was observed of it."""
    import tvm_ffi
    from torch._subclasses.fake_tensor import FakeTensorMode
    from workbook_overlay import entries, kernels
    from workbook_overlay.declare import declare_gpu
    from workbook_overlay.quantizer import Quantizer

    result = {"refused": "", "observed": []}
    declared = declare_gpu(asked["arch"])
    resolve(asked["entry"])
    with FakeTensorMode():
        inputs = make_inputs(entries.row(asked["entry"])["args"])
        try:
            quantizer = Quantizer(asked["entry"], inputs, declared["compute_capability"], NOTE)
            quantizer.set_kernels(tvm_ffi.convert(kernels.do_nothing))
            steps = REMEDIES[asked["remedy"]](quantizer)
            entry = next(steps)
        except Exception as error:  # with these versions the remedy cannot be applied: that is an answer
            result["refused"] = first_line(error)
        else:
            result |= trace(quantizer, entry)
            result["observed"] = observe(steps)
    return result | {
        "declared": declared | {"input_shapes": shapes(inputs)},
        "stand_ins": kernels.STAND_INS,
        "versions": versions(),
    }


def observe(steps) -> list[dict]:
    """What was observed; an observation that fails ends the list and is on it."""
    seen = []
    try:
        for step in steps:
            what, found = step if isinstance(step, tuple) else (step, None)
            seen.append({"what": what, "traced": found is not None, "error": found and found["error"]})
    except Exception as error:
        seen.append({"what": f"not observed further: {first_line(error)}", "traced": False, "error": None})
    return seen


def first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def costs(asked: dict) -> dict:
    """What an eager call costs with each remedy, over the bare call."""
    import torch
    from workbook_overlay import entries, timing
    from workbook_overlay.declare import declare_gpu
    from workbook_overlay.quantizer import Quantizer

    capability = declare_gpu(asked["arch"])["compute_capability"]
    function = resolve(asked["entry"])
    module = sys.modules[inspect.unwrap(function).__module__]
    module.get_compute_capability = lambda device: capability  # the installed one refuses a CPU tensor
    inputs = make_inputs(entries.row(asked["entry"])["args"], "cpu")
    try:
        quantizer = Quantizer(asked["entry"], inputs, capability)
        calls = [next(REMEDIES[name](quantizer)) for name in asked["costs"]]
        with torch.no_grad():
            found = timing.overheads(function, calls, inputs)
    except Exception as error:
        return {"failed": first_line(error)}
    return found | {"overheads": dict(zip(asked["costs"], found["overheads"], strict=True))}


def work(asked: dict) -> dict:
    return costs(asked) if "costs" in asked else compare(asked)


if __name__ == "__main__":
    sys.exit(answer(lambda: work(spec())))
