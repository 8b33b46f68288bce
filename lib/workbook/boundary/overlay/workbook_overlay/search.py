"""What to pass next when a trace stops: found from what each function did in an eager call, not from a list."""

import functools
import inspect

NEEDS_OPERATOR = (
    "takes or gives tensors and cannot be run on fake ones: it needs an operator with a fake of its own"
)


def on_stand_in_kernels(call):
    """A call whose kernels do nothing: a fake tensor has shapes, but no data for a foreign function."""
    import gc

    from workbook_overlay.kernels import StandInModule, do_nothing

    def around(*args, **kwargs):
        modules = [one for one in gc.get_objects() if type(one) is StandInModule]
        kept = [dict(vars(module)) for module in modules]
        for module in modules:
            vars(module).update(dict.fromkeys(vars(module), do_nothing))
        try:
            return call(*args, **kwargs)
        finally:
            for module, attributes in zip(modules, kept, strict=True):
                vars(module).update(attributes)

    return around


def way_past(seen, tries: int, has_kernels: bool, entry_code):
    """What to try next for a function that stopped the trace `tries` times before, and why; or why nothing is left."""
    from workbook_overlay.passing import one_value

    if seen is None:
        return None, "did not run in the eager call, so what it returns is not known"
    if seen.code is entry_code:
        return None, "is the traced function itself: its own code is what cannot be traced"
    if not seen.returned:
        return None, "did not return in the eager call"
    if not seen.tensors:
        if tries:
            return None, "was made a constant already, and Dynamo cannot take that constant"
        if not one_value(seen.returned):
            return None, f"returned different values in its {len(seen.returned)} eager calls"
        return "constant", f"returns what it returned in the eager call ({type(seen.returned[0]).__name__})"
    if tries == 0:
        return "opaque", "is a single node of the graph, as behind torch.compiler.allow_in_graph"
    if tries == 1 and has_kernels:
        return "opaque", "is a single node whose shapes come from itself around a kernel that does nothing"
    return None, NEEDS_OPERATOR


def candidates(error: BaseException, package: str) -> list:
    """The functions that could be passed to get past a stop, best first.

    First the call that leaves the package for another library, as a whole, since a piece of somebody else's class made
    constant would leave its object half built; then the package's own functions, innermost first.
    """
    from workbook_overlay.passing import is_library

    stack = [frame for frame in getattr(error, "real_stack", None) or () if is_library(frame.filename)]
    own = [number for number, frame in enumerate(stack) if top_package(frame) == package]
    if not own:
        return []
    return stack[own[-1] + 1 : own[-1] + 2] + [stack[number] for number in reversed(own)]


def top_package(frame) -> str:
    """The package whose code a frame is."""
    from workbook_overlay.explain import relative

    return relative(frame.filename).partition("/")[0].removesuffix(".py")


class Search:
    """One function's blockers: what is known of its eager call, and what was tried so far.

    Args:
        function: what is traced.
        package: whose functions may be passed; a call that leaves it may be as well.
        seen: what each function did in the eager call.
        has_kernels: whether its kernels are stand-ins that can be made to do nothing.
        own_opaque: whether the package's own functions may become single nodes; a model's layers cannot, since what
            they take is more than tensors.
    """

    def __init__(
        self, function, package: str, seen: dict, has_kernels: bool, *, own_opaque: bool = True
    ) -> None:
        from workbook_overlay.passing import Passed

        function = function.func if isinstance(function, functools.partial) else function
        self.code = inspect.unwrap(function).__code__
        self.package, self.seen, self.has_kernels = package, seen, has_kernels
        self.own_opaque = own_opaque
        self.passed, self.tries = Passed(), {}

    def next(self, error: BaseException) -> tuple[str | None, str]:
        """Pass one function that stands in the way: how it was passed, or None, and why."""
        from workbook_overlay.passing import at

        reason = "no function of the traced package is on the stack"
        for number, frame in enumerate(candidates(error, self.package)):
            found = at(self.seen, frame.filename, frame.name, frame.lineno)
            tries = self.tries.get(found and found.code, 0)
            way, how = way_past(found, tries, self.has_kernels, self.code)
            if way == "opaque" and not self.own_opaque and top_package(frame) == self.package:
                way, how = None, NEEDS_OPERATOR
            if way:
                self.tries[found.code] = tries + 1
                if way == "constant":
                    self.passed.constant(found)
                else:
                    self.passed.opaque(found, on_stand_in_kernels if tries else lambda call: call)
                return way, f"{found.code.co_qualname} {how}"
            if number == 0:
                reason = f"{frame.name} {how}"
        return None, reason
