"""Stand-ins for FlashInfer's compiled kernel modules, where no kernel can be built or run.

FlashInfer's own Python runs unchanged around them: only `JitSpec.build_and_load`, the step that needs nvcc and a
GPU, hands out a stand-in.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: What was stood in for in this process, for the record.
STAND_INS: list[str] = []


def do_nothing(*_args: object) -> None:
    """A kernel where only shapes and dtypes matter: its outputs stay unwritten."""


class StandInModule:
    """A compiled module any of whose functions is `kernel`. A function looked up once is a plain attribute."""

    def __init__(self, kernel: Callable[..., None]) -> None:
        self._kernel = kernel

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        self.__dict__[name] = self._kernel
        return self._kernel


@contextmanager
def stand_in(kernel: Callable[..., None] = do_nothing, note: str = "") -> Iterator[list[StandInModule]]:
    """Within the block, a JIT module that FlashInfer loads is a stand-in; yields the list of those handed out.

    Args:
        kernel: what each function of the module is.
        note: recorded in `STAND_INS` once per module; empty where the stand-in is no part of an outcome.
    """
    import flashinfer.jit.core as core

    handed_out: list[StandInModule] = []

    def build_and_load(spec, *_args, **_kwargs):
        if note and (entry := f"kernel module {spec.name}: {note}") not in STAND_INS:
            STAND_INS.append(entry)
        handed_out.append(StandInModule(kernel))
        return handed_out[-1]

    classes = [core.JitSpec, *core.JitSpec.__subclasses__()]
    saved = {cls: vars(cls)["build_and_load"] for cls in classes if "build_and_load" in vars(cls)}
    for cls in saved:
        cls.build_and_load = build_and_load
    try:
        yield handed_out
    finally:
        for cls, original in saved.items():
            cls.build_and_load = original
