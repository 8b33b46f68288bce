"""All that stops the trace of a model, in order: each stop is passed, as far as that can be done, to reach the next."""

import re
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from workbook_overlay import patches
from workbook_overlay.boundary import number
from workbook_overlay.explain import explain, relative, without_roots

LEVELS = {
    "custom_op": 4,
    "nsa_indexer": 5,
}  # the patches that get past a stop, and from which level on they are there
MOST = 20
STAND_IN = "this is a stand-in"
_MODULE = re.compile(r"\._modules\['(\w+)'\]")


def all_of(
    error: BaseException, again: Callable[[], object], warm_up: Callable[[], None], model, reached
) -> list[dict]:
    """Every stop from `error` on; the last tells that the trace reaches its end, or why it cannot be passed.

    Args:
        error: what stopped the first trace.
        again: traces once more, from nothing.
        warm_up: runs the model eagerly once more, which comes further once an operator was put in place.
        model: SGLang's model.
        reached: has what each function did in the eager call, by `passing.watch`.
    """
    from workbook_overlay.search import Search

    search = Search(type(model).forward, "sglang", reached.seen, has_kernels=True, own_opaque=False)
    found: list[dict] = []
    applied, seconds = len(patches.APPLIED), 0.0
    while len(found) < MOST:
        stop = {"error": explain(error), "layer": layer_of(error), "seconds": seconds}
        stop |= {"rests_on_stand_in": rests_on_stand_in(error, reached.unplanned), "level": None}
        if stop["rests_on_stand_in"]:
            found.append(
                stop
                | {"passed": "not passed", "how": "rests on a stand-in: what a real one does is not known"}
            )
            break
        level = None
        if put := operator_of_a_level(error, model):
            way, (how, level) = "opaque", put
            warm_up()
            search.seen = reached.seen
        else:
            way, how = search.next(error)
        found.append(stop | {"passed": way or "not passed", "how": how, "level": level})
        if way is None:
            break
        started = time.perf_counter()
        try:
            again()
        except Exception as next_error:
            error, seconds = next_error, time.perf_counter() - started
            continue
        found.append(
            {
                "error": None,
                "layer": "",
                "seconds": time.perf_counter() - started,
                "passed": "end",
                "how": "the trace reaches its end",
            }
        )
        break
    search.passed.restore()
    del patches.APPLIED[applied:]  # what the search put in place is no part of the launch
    return found


def wrongly_called(error: BaseException) -> bool:
    """Whether an operator was called with an argument that it does not have, which no kernel can change."""
    return "Unknown keyword argument" in str(error)


def located(error: BaseException) -> dict:
    """An exception of SGLang as it runs, with the frames of SGLang and FlashInfer that led to it."""
    frames = [
        {"file": relative(at.filename), "line": at.lineno, "function": at.name, "code": at.line or ""}
        for at in traceback.extract_tb(error.__traceback__)
    ]
    stack = [at for at in frames if at["file"].startswith(("sglang/", "flashinfer/"))]
    return explain(error) | {"message": without_roots(str(error)).partition(". Schema:")[0], "stack": stack}


def eager(error: BaseException) -> dict:
    """A stop of the eager forward that SGLang makes before it compiles, in the form of a trace's."""
    told = located(error)
    in_model = [at["file"].startswith("sglang/srt/models/") for at in told["stack"]]
    first = in_model.index(True) if any(in_model) else 0
    return {
        "error": told | {"stack": told["stack"][first:]},
        "layer": "",
        "seconds": 0.0,
        "rests_on_stand_in": False,
        "level": 5 if "topk_indices" in str(error) else None,
        "passed": "not passed",
        "how": "SGLang runs the model once before it compiles it, and that fails",
    }


def rests_on_stand_in(error: BaseException, unplanned: str = "") -> bool:
    """Whether a trace ended at something that was stood in for, so that it says nothing of a real one.

    So does a graph that was traced and then could not be compiled into kernels: nothing here compiles any.

    Args:
        unplanned: the class of the attention backend whose planning was left out, and which lacks what that makes.
    """
    return any(
        STAND_IN in str(one) or type(one).__name__ == "BackendCompilerFailed" for one in chained(error)
    )


def chained(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and its causes; what was merely being handled when it was raised may be an earlier stop."""
    while error is not None:
        yield error
        error = error.__cause__


def layer_of(error: BaseException) -> str:
    """The innermost module of the model that was being traced, such as model.layers.3.mlp; empty where none was.

    Read from Dynamo's own frames, which it keeps where `torch._dynamo.config.verbose` is set.
    """
    longest = ""
    for one in chained(error):
        for frame, _line in traceback.walk_tb(one.__traceback__):
            variables = getattr(frame.f_locals.get("self"), "symbolic_locals", None)
            source = getattr(variables.get("self") if variables else None, "source", None)
            if source is None:
                continue
            name = source.name() if callable(source.name) else source.name
            longest = max(longest, ".".join(["model", *_MODULE.findall(name)]), key=len)
    return longest


def operator_of_a_level(error: BaseException, model) -> tuple[str, int] | None:
    """Put in place the operators of the patch level for a function on the stack; how, in words, and the level."""
    stack = getattr(error, "real_stack", None) or ()
    for name, level in LEVELS.items():
        for target, functions in patches.TARGETS[name].items():
            module = sys.modules.get(target)
            names = {one.rpartition(".")[2] for one in functions}
            there = module is not None and any(
                at.filename == module.__file__ and at.name in names for at in stack
            )
            if there and put_in_place(name, model):
                return f"is an operator of its own, as patch level {level} makes it", level
    return None


def put_in_place(name: str, model) -> bool:
    """Apply a patch after its targets were imported, wherever they are bound; False where it refuses or is there."""
    title = patches.load(name).NAME
    if any(one.startswith(f"{title}:") for one in patches.APPLIED):
        return False
    targets = [sys.modules[one] for one in patches.TARGETS[name] if one in sys.modules]
    try:
        found = [(module, patches.originals(name, module)) for module in targets]
        for module in targets:
            patches.check(name, module)
    except patches.PatchRefused:
        return False
    new: dict[int, object] = {}
    for module, originals in found:
        patches.apply(name, module)
        new |= {id(one): patches.lookup(module, key) for key, one in originals.items()}
    for module in list(sys.modules.values()):
        for key, value in list(vars(module).items()):
            if id(value) in new:
                setattr(module, key, new[id(value)])
    for one in model.modules():
        bound = getattr(one, "_forward_method", None)  # how SGLang dispatches by platform
        if id(getattr(bound, "__func__", None)) in new:
            number(one)
            one._forward_method = types.MethodType(new[id(bound.__func__)], one)
    return True


@contextmanager
def few_layers(model) -> Iterator[int]:
    """Within the block the model ends after its first layers, as many as show each kind of layer once."""
    inner = getattr(model, "model", None)
    layers = getattr(inner, "layers", None)
    if layers is None or not isinstance(getattr(inner, "end_layer", None), int):
        yield 0
        return
    kinds = [kind(layer) for layer in layers]
    first = {one: number for number, one in reversed(list(enumerate(kinds)))}
    end, inner.end_layer = inner.end_layer, max(first.values()) + 1
    try:
        yield inner.end_layer
    finally:
        inner.end_layer = end


def kind(layer) -> tuple:
    """What tells one kind of decoder layer from another: its modules' classes, and how its linear layers multiply."""
    return tuple(
        (
            name,
            type(module).__name__,
            type(getattr(module, "quant_method", None)).__name__,
            getattr(module, "sliding_window_size", None),
        )
        for name, module in layer.named_modules()
    )
