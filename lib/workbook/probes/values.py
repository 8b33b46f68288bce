"""Level 4 against the bare call on this GPU: shapes, values and cost; print one JSON object.

    WORKBOOK_PATCH_LEVEL=4 PYTHONPATH=<overlay>:<FlashInfer's folder> python -P values.py '{"entry": ..., ...}'

FlashInfer builds its kernel on first use. Every output is filled with a poison before the kernel runs, and each call is
made with two poisons: a byte that keeps both was never written. A kernel that is compiled to nothing on an architecture
reports no error, and only this tells.
"""

import functools
import inspect
import sys
from contextlib import contextmanager

from workbook_overlay.answer import answer, spec

POISONS = (0xFF, 0x5A)
ALLOCATORS = ("empty", "empty_like", "empty_strided")
SEED = 20260214
WARM_UP_CALLS = 20_000


def as_bytes(tensor):
    """A tensor's bytes, in the order of its elements."""
    import torch

    return tensor.detach().contiguous().view(-1).view(torch.uint8)


@contextmanager
def poisoned(byte: int):
    """Within the block every tensor that is allocated empty holds this byte throughout."""
    import torch

    owners = [(torch, name) for name in ALLOCATORS] + [(torch.Tensor, "new_empty")]
    saved = [(owner, name, getattr(owner, name)) for owner, name in owners]
    plain = torch.empty

    def filling(original):
        @functools.wraps(original)
        def allocate(*args, **kwargs):
            tensor = original(*args, **kwargs)
            if tensor.is_cuda and tensor.numel():
                view = plain(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
                view.fill_(byte)
            return tensor

        return allocate

    for owner, name, original in saved:
        setattr(owner, name, filling(original))
    try:
        yield
    finally:
        for owner, name, original in saved:
            setattr(owner, name, original)


class Call:
    """One call of the table on real tensors: by its patched name, to the installed function, through the operator."""

    def __init__(self, path: str) -> None:
        from workbook_overlay import entries
        from workbook_overlay.call import resolve
        from workbook_overlay.patches.custom_op import OPERATOR
        from workbook_overlay.planned import bound
        from workbook_overlay.shadow import ORIGINAL

        self.row = entries.row(path)
        self.name = bound(self.row) if "planned" in self.row else resolve(path)
        self.bare, self.operator = getattr(self.name, ORIGINAL), getattr(self.name, OPERATOR)
        if "planned" in self.row:
            planned = self.name.__self__
            self.bare, self.operator = self.bare.__get__(planned), self.operator.__get__(planned)
        self.kwargs = self.row.get("kwargs", {})

    def inputs(self) -> list:
        import torch
        from workbook_overlay.call import fill, make_inputs

        inputs = make_inputs(self.row["args"])
        generator = torch.Generator("cuda").manual_seed(SEED)
        for one, described in zip(inputs, self.row["args"], strict=True):
            fill(one, described, generator)
        return inputs

    def results(self, function, byte: int) -> list:
        """What a call gives, or changes: tensors, on outputs that held a poison."""
        import torch
        from workbook_overlay.boundary import listed

        inputs = self.inputs()
        torch.manual_seed(SEED)
        with poisoned(byte):
            given = function(*inputs, **self.kwargs)
        torch.cuda.synchronize()
        if mutated := self.row.get("mutates"):
            names = list(inspect.signature(self.bare).parameters)
            return [inputs[names.index(name)] for name in mutated]
        return listed(given)


def compare(call: Call) -> dict:
    """The operator's values against the bare call's, its fake's shapes, and what the kernel left unwritten."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from workbook_overlay.boundary import listed
    from workbook_overlay.call import make_inputs, shapes

    bare = [call.results(call.bare, byte) for byte in POISONS]
    again = call.results(call.bare, POISONS[0])
    operator = [call.results(call.operator, byte) for byte in POISONS]
    with FakeTensorMode(allow_non_fake_inputs=True):
        faked = listed(call.operator(*make_inputs(call.row["args"]), **call.kwargs))
    mutates = bool(call.row.get("mutates"))
    return {
        "output_shapes": shapes(bare[0]),
        "fake_equal": mutates or described(faked) == described(bare[0]),
        "unwritten": [0.0 if mutates else share_kept(*pair) for pair in zip(*bare, strict=True)],
        "repeatable": same(bare[0], again),
        "equal": all(same(one, other) for one, other in zip(bare, operator, strict=True)),
    }


def described(results: list) -> list:
    return [(one.dtype, one.shape, one.stride()) for one in results]


def share_kept(first, second) -> float:
    """The share of bytes that hold the first poison in one result and the second in the other."""
    kept = (as_bytes(first) == POISONS[0]) & (as_bytes(second) == POISONS[1])
    return kept.float().mean().item()


def same(results: list, others: list) -> bool:
    """Whether two lists of tensors are equal bit for bit, strides and dtypes included."""
    import torch

    return described(results) == described(others) and all(
        torch.equal(as_bytes(one), as_bytes(other)) for one, other in zip(results, others, strict=True)
    )


def cost(call: Call) -> dict:
    """What an eager call by the patched name, and one through the operator, cost over the bare call on this host."""
    import torch
    from workbook_overlay.timing import overheads

    def bare(*inputs):
        return call.bare(*inputs, **call.kwargs)

    def name(*inputs):
        return call.name(*inputs, **call.kwargs)

    def operator(*inputs):
        return call.operator(*inputs, **call.kwargs)

    inputs = call.inputs()
    # a processor that has just been waiting for a kernel's build is slow at first
    for _ in range(WARM_UP_CALLS):
        bare(*inputs)
    found = overheads(bare, [name, operator], inputs, torch.cuda.synchronize)
    by_name, through = found["overheads"]
    return {
        "bare_us_p50": found["bare_us_p50"],
        "calls": found["calls"],
        "eager_overhead_us_p50": by_name["overhead_us_p50"],
        **through,
    }


def values(asked: dict) -> dict:
    import torch

    if not torch.cuda.is_available():
        return {"failed": "there is no GPU", "versions": {}, "gpu": None}
    import flashinfer  # noqa: F401
    from workbook_overlay.call import versions

    result = {
        "failed": None,
        "versions": versions(),
        "gpu": torch.cuda.get_device_name(),
        "compute_capability": torch.cuda.get_device_capability(),
    }
    try:
        with torch.inference_mode():
            call = Call(asked["entry"])
            result |= compare(call)
            if asked["timing"]:
                result |= cost(call)
    except Exception as error:
        result["failed"] = f"{type(error).__name__}: {error}"[:2000]
    return result


if __name__ == "__main__":
    sys.exit(answer(lambda: values(spec())))
