"""One line that tells how far a long step is: updated in place in a notebook, printed in a terminal."""

import sys
import time
from collections.abc import Callable

from IPython.core.getipython import get_ipython
from IPython.display import DisplayHandle, Pretty


def live(what: str, total: int) -> Callable[[str], None]:
    """A function to call after each of `total` steps, with a word on the step that has just ended."""
    started, done = time.monotonic(), 0
    show = _notebook_line() if get_ipython() is not None else _terminal_line()
    show(f"{what}: 0 of {total}")

    def step(word: str) -> None:
        nonlocal done
        done += 1
        show(f"{what}: {done} of {total}, {time.monotonic() - started:.0f} s; last: {word}")

    return step


def live_line() -> Callable[[str], None]:
    """A function that shows what is going on, with the seconds since it was made."""
    started = time.monotonic()
    show = _notebook_line() if get_ipython() is not None else _terminal_line()
    return lambda text: show(f"{time.monotonic() - started:.0f} s: {text}")


def _notebook_line() -> Callable[[str], None]:
    handle = DisplayHandle()  # type: ignore[no-untyped-call]
    shown = False

    def show(text: str) -> None:
        nonlocal shown
        (handle.update if shown else handle.display)(Pretty(text))  # type: ignore[no-untyped-call]
        shown = True

    return show


def _terminal_line() -> Callable[[str], None]:
    return lambda text: print(text, file=sys.stderr)
