"""What a server's log tells of its CUDA graph capture: every captured shape, and what each phase took.

SGLang shows a tqdm bar for the shapes, on the first tensor-parallel rank only, and every rank logs where a phase
begins and ends. The wordings of 0.5.9 to 0.5.23 are read; what a log does not have is not made up.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from workbook.serving.log import names_error, read_time, split_stamp
from workbook.types import CaptureStep

NUMBER = r"-?\d{1,9}(?:\.\d{1,9})?"
# 0.5.12's breakable capture says "[BCG] Capturing (", 0.5.23 "prefill shape" where others say "num tokens"
BAR = re.compile(
    r"(?P<verb>Captur|Compil)ing(?P<noun>[a-z ]*) \((?P<unit>bs|num_tokens)=(?P<size>\d{1,9})"
    rf"(?: avail_mem=(?P<memory>{NUMBER}) GB)?\): +\d+%\|[^|]*\| (?P<done>\d{{1,9}})/(?P<total>\d{{1,9}})"
    r" \[(?P<elapsed>\d{1,5}(?::\d\d){1,2})<"
)
PREFIX = re.compile(
    r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d+)?(?P<place>(?: [A-Z_]+\d{1,9})*)\] "
    r"|\[rank(?P<rank>\d{1,9})\]:? "
)
PHASE = re.compile(
    r"Capture (?P<name>[\w -]{0,60}?)(?: ?\w{1,20} graph)? (?P<edge>begin|end)\b"
    rf"(?:.*?(?:elapsed=|Time elapsed: )(?P<elapsed>{NUMBER}) s[.,] mem usage=(?P<used>{NUMBER}) GB)?"
)
COMPILE = "compile"
WORDS = ("Captur", "Compil")  # one of them is in every line of interest


@dataclass(frozen=True)
class Bar:
    """One state of a progress bar: the shape at work, how many are done of how many."""

    phase: str
    size: int
    avail_mem_gb: float | None
    done: int
    total: int
    elapsed_s: float


@dataclass(frozen=True)
class CapturePhase:
    """One phase on one rank; seconds and GB are None where the log does not tell, as for a phase that never ended."""

    rank: int
    phase: str
    seconds: float | None = None
    graph_memory_gb: float | None = None


@dataclass(frozen=True)
class CaptureLog:
    """What a log tells of the capture. `unfinished` are those of `steps` that never ended."""

    steps: tuple[CaptureStep, ...] = ()
    phases: tuple[CapturePhase, ...] = ()
    unfinished: tuple[CaptureStep, ...] = ()

    @property
    def seconds(self) -> float | None:
        """From the first shape to the end of the last, over all ranks and phases; None without any."""
        if not self.steps:
            return None
        return max(step.start_s + step.duration_s for step in self.steps) - min(
            step.start_s for step in self.steps
        )

    @property
    def graph_memory_gb(self) -> float | None:
        """What the graphs of all phases took, on the rank where that is most; None where no rank tells."""
        taken: dict[int, float] = {}
        for phase in self.phases:
            if phase.graph_memory_gb is not None:
                taken[phase.rank] = taken.get(phase.rank, 0.0) + phase.graph_memory_gb
        return max(taken.values(), default=None)


def read_capture(log: Path, label: str = "") -> CaptureLog:
    """Parse a server's log.

    A step lasts until its bar moves on. One that never ended lasts to the first error after it, else to the last line
    with a time. Times are those of the stamps; without stamps, whole seconds by the bars and SGLang's own times. A
    decode phase counts requests, which are tokens unless it speculates.

    Args:
        label: the server's, for the steps.
    """
    with log.open(errors="replace") as lines:  # universal newlines: a bar's carriage returns end lines too
        return parse_capture(lines, label)


def parse_capture(lines: Iterable[str], label: str = "") -> CaptureLog:
    """`read_capture` for lines that are at hand."""
    reader = _Reader()
    for line in lines:
        reader.read(line)
    return reader.finish(label)


def read_bars(text: str) -> Iterator[tuple[re.Match[str], Bar]]:
    """The states of capture bars in a line; a log message may stand on the same line."""
    for found in BAR.finditer(text):
        yield (
            found,
            Bar(
                phase=COMPILE
                if found["verb"] == "Compil"
                else "decode"
                if found["unit"] == "bs"
                else "prefill",
                size=int(found["size"]),
                avail_mem_gb=float(found["memory"]) if found["memory"] else None,
                done=int(found["done"]),
                total=int(found["total"]),
                elapsed_s=_clock(found["elapsed"]),
            ),
        )


def read_phase(text: str) -> tuple[str, re.Match[str]] | None:
    """The name of the phase whose begin or end a line tells, in the words of the newer versions; None for others."""
    found = PHASE.search(text)
    if found is None:
        return None
    name = found["name"].removeprefix("target").strip()
    return {"": "decode", "piecewise": "prefill"}.get(name, name), found


@dataclass
class _Step:
    """A shape at work: since when, and until when as far as is known."""

    bar: Bar
    start: float
    end: float | None = None


class _Reader:
    """Follows the bars of every rank and phase, line by line."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.now = 0.0
        self.last = ""
        self.begun: dict[int, str] = {}  # the phase that a rank is in, by its own words
        self.bar_began: dict[tuple[int, str], float] = {}
        self.tracks: dict[tuple[int, str], list[_Step]] = {}
        self.open: dict[tuple[int, str], _Step] = {}
        self.phases: dict[tuple[str, str], CapturePhase] = {}

    def read(self, line: str) -> None:
        self.last = line
        telling = any(word in line for word in WORDS)
        failing = not telling and self.open and names_error(line)
        if not telling and not failing and self.first is not None:
            return  # most lines: a log may have a million
        stamp, text = split_stamp(line)
        self._tick(stamp, text)
        if telling:
            self._bars(text, stamped=stamp is not None)
            self._phase(text)
        elif failing:
            for step in self.open.values():
                step.end = step.end or self.now

    def _tick(self, stamp: datetime | None, text: str) -> None:
        if stamp is None and (prefix := PREFIX.search(text)) and prefix["time"]:
            stamp = read_time(f"{prefix['time']}Z")
        if stamp is not None:
            self.now = max(self.now, stamp.timestamp())
            self.first = self.now if self.first is None else self.first

    def _bars(self, text: str, *, stamped: bool) -> None:
        for found, bar in read_bars(text):
            rank, _ = _rank_and_place(text[: found.start()])
            key = rank, bar.phase if bar.phase == COMPILE else self.begun.get(rank, bar.phase)
            began = self.bar_began.setdefault(key, self.now)
            if not stamped:
                self.now = max(self.now, began + bar.elapsed_s)
            self._move(key, bar)

    def _move(self, key: tuple[int, str], bar: Bar) -> None:
        track, step = self.tracks.setdefault(key, []), self.open.get(key)
        if step is not None and (bar.size, bar.done) == (step.bar.size, step.bar.done):
            return
        self._close(key)
        last = track[-1].bar if track else None
        # a shape that is done is counted under its own name before the next one is named, with those before it that
        # tqdm, which skips counts when they come fast, had not shown yet
        counted = last is not None and bar.size == last.size and bar.done > last.done
        if bar.done < bar.total and not counted:
            track.append(_Step(bar, self.now))
            self.open[key] = track[-1]

    def _close(self, key: tuple[int, str]) -> None:
        if step := self.open.pop(key, None):
            step.end = self.now

    def _phase(self, text: str) -> None:
        if (told := read_phase(text)) is None:
            return
        phase, found = told
        rank, place = _rank_and_place(text[: found.start()])
        seconds, used = (float(found[name]) if found[name] else None for name in ("elapsed", "used"))
        self.phases[place, phase] = CapturePhase(rank, phase, seconds, used)
        if found["edge"] == "begin":
            self.begun[rank] = phase
        else:
            self.begun.pop(rank, None)
            for key in [key for key in self.open if key[0] == rank]:
                self._close(key)

    def finish(self, label: str) -> CaptureLog:
        self._tick(*split_stamp(self.last))
        first, unfinished = self.first or 0.0, []
        steps: list[CaptureStep] = []
        for (rank, phase), track in self.tracks.items():
            for step in track:
                end = self.now if step.end is None else step.end
                steps.append(
                    CaptureStep(
                        label=label,
                        rank=rank,
                        phase=phase,
                        num_tokens=step.bar.size,
                        start_s=round(step.start - first, 3),
                        duration_s=round(max(end - step.start, 0.0), 3),
                        avail_mem_gb=step.bar.avail_mem_gb,
                    )
                )
            if (rank, phase) in self.open:
                unfinished.append(steps[-1])
        return CaptureLog(tuple(steps), tuple(self.phases.values()), tuple(unfinished))


def _rank_and_place(before: str) -> tuple[int, str]:
    """The rank by the last prefix in a text, and the prefix's words; rank 0 without one: it alone shows a bar."""
    rank, place = 0, ""
    for prefix in PREFIX.finditer(before):
        place = prefix["place"] or prefix["rank"] or ""
        parts = dict(re.findall(r"([A-Z_]+)(\d+)", place))
        rank = int(prefix["rank"] or parts.get("TP") or parts.get("DP") or parts.get("PP") or 0)
    return rank, place


def _clock(text: str) -> float:
    """Seconds of tqdm's mm:ss or h:mm:ss."""
    seconds = 0
    for part in text.split(":"):
        seconds = 60 * seconds + int(part)
    return float(seconds)
