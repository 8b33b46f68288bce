"""One rank of a tensor-parallel group without the others: a fake process group, SGLang's communicators on it."""

import os
from contextlib import contextmanager


def join(rank: int, world_size: int) -> None:
    """Make this process rank `rank` of a group of `world_size`, whose collectives do nothing.

    Every group that SGLang makes afterwards is of the same kind, and of its communicators only the shapes count.
    """
    import torch
    import torch.distributed as dist

    os.environ["SGLANG_USE_MESSAGE_QUEUE_BROADCASTER"] = "false"  # it would wait for the other ranks
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world_size)
    new_group = dist.new_group

    def new_fake_group(ranks=None, timeout=None, backend=None, **rest):
        return new_group(ranks, backend="fake")

    dist.new_group = torch.distributed.new_group = new_fake_group
    dist.barrier = dist.monitored_barrier = lambda *args, **kwargs: None
    _stand_in_communicators()


def _stand_in_communicators() -> None:
    import sglang.srt.distributed.device_communicators.pynccl as pynccl

    pynccl.PyNcclCommunicator = Communicator


class Communicator:
    """SGLang's NCCL communicator without NCCL."""

    disabled = False
    available = True

    def __init__(self, *_args, **_kwargs) -> None:
        pass

    def all_reduce(self, tensor, *_args, **_kwargs):
        return tensor

    def outplace_all_reduce(self, tensor, *_args, **_kwargs):
        import torch

        return torch.empty_like(tensor)

    @contextmanager
    def change_state(self, *_args, **_kwargs):
        yield
