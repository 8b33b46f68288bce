"""What SGLang asks of a tensor's contents while it loads a model: a fake one has none, so it is told and recorded."""

import sys
from collections.abc import Callable
from pathlib import Path

from workbook_foresee.kernels import note


def answered(num_tokens: Callable[[], int]):
    """A context: a question for a value is answered with one, pinned memory is plain memory, an address is 0.

    Args:
        num_tokens: the tokens of the batch, which is how often anything is repeated that is repeated by a tensor.
    """
    import torch
    from torch._ops import OpOverload, OpOverloadPacket
    from torch.overrides import TorchFunctionMode

    answers = {
        torch.Tensor.item: 1.0,
        torch.Tensor.__bool__: True,
        torch.Tensor.__float__: 1.0,
        torch.Tensor.__int__: 1,
        torch.Tensor.data_ptr: 0,
        torch.Tensor.is_pinned: False,
        torch.allclose: True,
        torch.equal: True,
    }

    class Answered(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if function in answers:
                try:
                    return function(*args, **kwargs)
                except Exception:
                    answer = answers[function]
                    if function is torch.Tensor.item and not args[0].is_floating_point():
                        answer = int(answer)
                    note(f"{asker()} asks for {function.__name__} of a tensor: told {answer}")
                    return answer
            if function is torch.Tensor.pin_memory:
                return args[0]
            if function is torch.repeat_interleave and len(args) > 1 and isinstance(args[1], torch.Tensor):
                kwargs.setdefault("output_size", num_tokens())
                note(f"{asker()} repeats by a tensor: told {num_tokens()}, the tokens of the batch")
            kwargs.pop("pin_memory", None)
            if isinstance(function, OpOverload | OpOverloadPacket):
                return shaped(function, args, kwargs)
            return function(*args, **kwargs)

    return Answered()


def shaped(operator, args, kwargs):
    """What an operator gives; one that has no fake of its own gives something of its first argument's shape.

    In an eager call only: in a trace a missing fake is a stop, as it is on a GPU.
    """
    import torch
    from torch._subclasses.fake_tensor import UnsupportedOperatorException

    try:
        return operator(*args, **kwargs)
    except UnsupportedOperatorException:
        first = next(one for one in [*args, *kwargs.values()] if isinstance(one, torch.Tensor))
        note(f"{operator}: has no fake; in the eager warm-up its result has its first argument's shape")
        overload = getattr(operator, "default", operator)
        count = {"Tensor": 1, "List[Tensor]": 2}  # so many as its callers unpack
        made = [
            torch.empty_like(first) for one in overload._schema.returns for _ in range(count[str(one.type)])
        ]
        return made[0] if len(made) == 1 else made


def unanswered():
    """A context within that of `answered`: no question is answered, as Dynamo would trace the answering too."""
    from torch.overrides import _pop_mode_temporarily

    return _pop_mode_temporarily()


def asker() -> str:
    """The innermost function of SGLang or FlashInfer on the stack, as module:function."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] in ("sglang", "flashinfer"):
            return f"{name}:{frame.f_code.co_name}"
        frame = frame.f_back
    return Path(sys.argv[0]).stem
