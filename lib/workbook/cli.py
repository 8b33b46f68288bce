"""The `workbook` command. Exit status: 0 answered (also "it crashes"), 2 bad arguments, 1 the workbook failed."""

import signal
import sys
from types import FrameType
from typing import NoReturn

import typer

from workbook.commands import (
    bench,
    boundary,
    campaign,
    doctor,
    foresee,
    matrix,
    patch,
    serve,
    stack,
    wheelhouse,
)
from workbook.commands.console import err
from workbook.errors import WorkbookError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(foresee.foresee)
app.command()(campaign.run)
app.command()(campaign.report)
app.command()(boundary.trace)
app.command()(boundary.blockers)
app.command()(matrix.matrix)
app.command()(boundary.values)
app.command()(bench.bench)
app.command()(doctor.doctor)
app.command()(serve.serve)
app.command(name="exec", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
    patch.exec_
)
app.command()(wheelhouse.wheelhouse)
app.add_typer(patch.app, name="patch")
app.add_typer(stack.app, name="stack")


def _stop_on_sigterm(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Entry point: errors become one sentence and an exit status."""
    signal.signal(signal.SIGTERM, _stop_on_sigterm)
    try:
        app()
    except WorkbookError as error:
        err.print(f"workbook: {error}")
        sys.exit(error.exit_status)
    except OSError as error:  # a full disk, a folder that is not ours
        err.print(f"workbook: {error.filename or 'output'}: {error.strerror or error}.")
        sys.exit(1)


if __name__ == "__main__":
    main()
