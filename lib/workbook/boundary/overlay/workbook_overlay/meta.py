"""Meta tensors in the place of tensors on a GPU that is not there: shapes, strides and dtypes, and no driver."""


def to_meta(value):
    """A meta tensor of the same shape and strides, in lists too; anything else as it is."""
    import torch

    if isinstance(value, list | tuple):
        return type(value)(to_meta(one) for one in value)
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def like(value, device):
    """Empty tensors of the same shapes, strides and dtypes on a device, in lists too; None for anything else."""
    import torch

    if isinstance(value, list | tuple):
        return type(value)(like(one, device) for one in value)
    if not isinstance(value, torch.Tensor):
        return None
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)


def stay_on_meta():
    """A context: what asks for a device gets a meta tensor, and what is to be moved stays. For this thread only."""
    import torch
    from torch.overrides import TorchFunctionMode

    class StayOnMeta(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if function is torch.Tensor.cuda:
                return args[0]
            if kwargs.get("device") is not None:
                kwargs = {**kwargs, "device": "meta"}
            return function(*args, **kwargs)

    return StayOnMeta()


def through_meta():
    """A context: what is asked of a fake CUDA tensor is computed on meta tensors, and the answer is a fake CUDA tensor.

    A torch built without CUDA cannot even slice a fake CUDA tensor: it looks for the driver. Views come back as tensors
    of their own, which is enough where shapes are all that counts. For this thread only.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    from workbook_overlay.passing import holds_tensor

    def is_cuda(value):
        return isinstance(value, torch.Tensor) and value.is_cuda

    class ThroughMeta(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            with torch._C.DisableTorchFunction():
                given = [one for one in [*args, *kwargs.values()] if is_cuda(one)]
            if function is torch.Tensor.cuda:
                return args[0]
            if not given or getattr(function, "__name__", "") == "__get__":  # an attribute, such as shape
                return function(*args, **kwargs)
            moved = {name: to_meta(one) for name, one in kwargs.items()}
            answer = function(*map(to_meta, args), **moved)
            return like(answer, given[0].device) if holds_tensor(answer) else answer

    return ThroughMeta()
