"""How far a starting server is, in a few words, by what its log says."""

import re

from workbook.serving.capture_log import read_bars, read_phase
from workbook.serving.log import printable

READY = "ready"
READY_LINE = "The server is fired up and ready to roll!"
# Bounded, like all that is looked for in a log: a search without bounds takes hours on one hostile line.
SHARDS = re.compile(r"(?i)loading[\w -]{0,60}shards: +\d{1,3}%.{0,200}?\| (\d{1,9})/(\d{1,9}) \[")
MEMORY = re.compile(r"avail mem=(\d+(?:\.\d+)?) GB")
COMPILING = re.compile(r"^workbook: compiling: (.*)")
BUILDING = "building kernels"
COMPILE = "compiling the model"
# The first words that a line has, and what the server does from then on.
SIGNS = (
    ("server_args=", "starting its processes"),
    ("Init torch distributed begin", "joining its ranks"),
    ("Init parallel begin", "joining its ranks"),
    ("Load weight begin", "loading weights"),
    ("Load weight end", "weights loaded"),
    ("KV Cache is allocated", "allocating the KV cache"),
    ("Memory pool end", "KV cache allocated"),
    ("Running FlashInfer autotune", "tuning FlashInfer's kernels"),
    ("Application startup complete", "warming up"),
    ("Uvicorn running on", "warming up"),
    (READY_LINE, READY),
)


class Progress:
    """Reads a log line by line, and says in `words` what the server is at."""

    def __init__(self) -> None:
        self.doing = "importing SGLang"
        self.words = self.doing
        self.ready = False  # by its own words
        self._left = ""

    def read(self, text: str) -> str:
        """Take in a line, without its stamp; what the server is at after it."""
        detail = ""
        if memory := MEMORY.search(text):
            self._left = f"{memory[1]} GB left"
        if bars := list(read_bars(text)):
            state = bars[-1][1]
            verb = COMPILE if state.phase == "compile" else f"capturing {state.phase} graphs"
            self.doing = f"{verb}, {min(state.done + 1, state.total)} of {state.total} sizes"
            detail = f"{state.size:,} {'requests' if state.phase == 'decode' else 'tokens'}"
            if state.avail_mem_gb is not None:
                self._left = f"{state.avail_mem_gb:g} GB left"
        elif told := read_phase(text):
            phase, found = told
            self.doing = (
                f"capturing {phase} graphs" if found["edge"] == "begin" else f"{phase} graphs captured"
            )
        elif shards := SHARDS.search(text):
            self.doing = f"loading weights, {shards[1]} of {shards[2]} shards"
        elif compiling := COMPILING.match(text):
            self.words = f"{self.doing}: {BUILDING} ({printable(compiling[1])})"
            return self.words
        else:
            self.ready = self.ready or READY_LINE in text
            self.doing = next((doing for sign, doing in SIGNS if sign in text), self.doing)
        self.words = ", ".join(part for part in (self.doing, detail, self._left) if part)
        return self.words
