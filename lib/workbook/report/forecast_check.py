"""A forecast held against what the server that it was about really did."""

from dataclasses import dataclass

from workbook.types import CaptureMode, Forecast, Foretold, Measurement, ServeOutcome, Status

# The steps in a log that only a piecewise capture has.
PIECEWISE = ("compile", "prefill")


@dataclass(frozen=True)
class Check:
    """What a real server came to; `hit` is None where that says nothing of the forecast.

    Args:
        server: its label.
        real: what it did, in words.
    """

    server: str
    real: str
    hit: bool | None

    @property
    def word(self) -> str:
        """The judgement in a word."""
        return {True: "hit", False: "miss", None: "not decided"}[self.hit]


def check(found: Forecast, measured: Measurement) -> Check | None:
    """The forecast against the server of its own profile, level and SGLang that was asked to capture piecewise.

    None where there was no such server.
    """
    serve = next((one for one in measured.serves if _is_of(found, one)), None)
    if serve is None:
        return None
    bears_out, real = _end(serve, measured)
    decided = bears_out is not None and found.outcome is not Foretold.CANNOT_TELL
    return Check(serve.label or serve.profile, real, found.outcome is bears_out if decided else None)


def _end(serve: ServeOutcome, measured: Measurement) -> tuple[Foretold | None, str]:
    """What the server would have had to be foretold, None where its end is none that a trace tells; and its end."""
    if serve.ready_s is not None:
        if any(step.label == serve.label and step.phase in PIECEWISE for step in measured.steps):
            return Foretold.TRACES, "captured piecewise"
        return Foretold.SWITCHED_OFF, "served without capturing piecewise"
    line = serve.decisive_line or serve.reason
    if serve.status is Status.DYNAMO_UNSUPPORTED:
        return Foretold.STOPS, f"died in the trace: {line}"
    return None, f"ended as {serve.status}, of which a trace tells nothing: {line}"


def _is_of(found: Forecast, serve: ServeOutcome) -> bool:
    return (
        serve.capture_mode is CaptureMode.PIECEWISE
        and (serve.profile, serve.patch_level) == (found.profile, found.patch_level)
        and serve.sglang == found.versions.get("sglang")
    )
