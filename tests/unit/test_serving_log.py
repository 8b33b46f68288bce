"""What a log says, stamped or not: the line that decides, and what the server died of."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from workbook.serving.log import decisive_line, failure_status, split_stamp, where
from workbook.types import Status

STAMP = "2026-11-30T16:40:01.123Z "


def write(folder: Path, *lines: str) -> Path:
    log = folder / "log"
    log.write_text("\n".join(lines) + "\n")
    return log


def test_a_stamp_is_told_from_the_text() -> None:
    when = datetime(2026, 11, 30, 16, 40, 1, 123000, UTC)
    assert split_stamp(f"{STAMP}[2026-11-30 16:40:01 TP0] text") == (when, "[2026-11-30 16:40:01 TP0] text")
    assert split_stamp("[2026-11-30 16:40:01] text") == (None, "[2026-11-30 16:40:01] text")
    assert split_stamp("2026-13-30T16:40:01.123Z x") == (None, "2026-13-30T16:40:01.123Z x")


@pytest.mark.parametrize("stamp", ["", STAMP])
def test_stamped_and_bare_logs_read_alike(tmp_path: Path, stamp: str) -> None:
    lines = ["loading", "ValueError: the cause", "[2026-11-30 16:40:01] a warning of SomeError", "bye"]
    log = write(tmp_path, *(stamp + line for line in lines))
    assert decisive_line(log) == ("ValueError: the cause", 2)
    assert where(log) == f"ValueError: the cause (line 2 of {log})"


@pytest.mark.parametrize(
    "consequence",
    [
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: -3).",
        "[2026-11-30 16:40:01] Subprocess scheduler_0 (pid=1) crashed with exit code -9. Triggering SIGQUIT",
        "workbook: error: sglang::scheduler_TP3 (process 41) ended, and the server went on without it; it is given up",
        "EOFError",
    ],
)
def test_what_the_launcher_says_of_a_death_decides_only_for_want_of_the_cause(
    tmp_path: Path, consequence: str
) -> None:
    log = write(tmp_path, "torch._dynamo.exc.Unsupported: Attempted to call", "from user code:", consequence)
    assert decisive_line(log) == ("torch._dynamo.exc.Unsupported: Attempted to call", 1)
    log = write(tmp_path, "ready", consequence, "bye")
    assert decisive_line(log) == (consequence, 2)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["torch._dynamo.exc.Unsupported: Attempted to call function marked as skipped"], "dynamo_unsupported"),
        (["RuntimeError: Capture x graph failed", "torch._dynamo.exc.Unsupported: y"], "dynamo_unsupported"),
        (["Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate"], "oom"),
        (["torch.OutOfMemoryError: CUDA out of memory."], "oom"),
        (["RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."], "oom"),
        (["Exception: Capture cuda graph failed: invalid argument"], "capture_failed"),
        (["[2026-11-30 16:40:01 TP0] Piecewise CUDA Graph failed with error: x"], "capture_failed"),
        (["torch.AcceleratorError: CUDA error: operation not permitted when stream is capturing"], "capture_failed"),
        (["RuntimeError: Ninja build failed. Ninja output:", "ninja: build stopped"], "jit_failed"),
        (["RuntimeError: no kernel image is available"], "crashed"),
        (["a warning: falls back after an OutOfMemoryError elsewhere", "KeyError: 'x'"], "crashed"),
        ([], "crashed"),
    ],
)  # fmt: skip
def test_what_it_died_of_goes_by_the_cause(tmp_path: Path, lines: list[str], status: str) -> None:
    assert failure_status(write(tmp_path, *lines)) is Status(status)
    assert failure_status(write(tmp_path, *(STAMP + line for line in lines))) is Status(status)
