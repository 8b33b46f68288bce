"""SGLang releases without their dependencies, each in a folder that is kept, and what their parsers say.

    .venv/bin/python -m tests.sglang_wheels [VERSION ...]

enters versions (all those on record, if none is named) into lib/workbook/serving/sglang_options.json.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from workbook.paths import OVERLAY, stacks_dir
from workbook.serving import options

PARSER = Path(__file__).with_name("sglang_parser.py")
ABOUT = (
    "What ServerArgs.add_cli_args of each SGLang takes: after the first, what differs from the version before it "
    "(null: gone). sets: where the parser keeps it; kind of value, text where absent; fewest and most values, one "
    "where absent (null: no limit). Options that only say they are deprecated are left out. "
    "Made by `python -m tests.sglang_wheels`."
)


class NoWheel(Exception):
    """No index could be reached, or none has it."""


def fetch(version: str) -> Path:
    """The folder with this SGLang alone, fetched on first use; unpacked 26 MB (0.5.9) to 132 MB (0.5.23).

    Raises:
        NoWheel: it could not be fetched.
    """
    folder = stacks_dir() / "parsers" / f"sglang-{version}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-") as beside:
            made = Path(beside) / "sglang"
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
            done = subprocess.run(
                [*pip, "--only-binary", ":all:", "--target", str(made), f"sglang=={version}"],
                capture_output=True,
                text=True,
                timeout=300,
            )
            if done.returncode != 0:
                raise NoWheel(done.stderr.strip().rpartition("\n")[2])
            made.rename(folder)
    return folder


def ask(version: str, requests: Sequence[dict]) -> dict:
    """What the parser of this SGLang takes (`options`), and what it makes of these requests (`answers`)."""
    path = os.pathsep.join([str(fetch(version)), str(OVERLAY)])
    own = {
        "PYTHONPATH": path,
        "WORKBOOK_CPU_SGLANG": "1",
        "SGLANG_USE_CPU_ENGINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-P", str(PARSER)],
        input=json.dumps(list(requests)),
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"SGLang {version}: {done.stderr[-3000:]}"
    return json.loads(done.stdout.strip().rpartition("\n")[2])


def changes(before: dict, after: dict) -> dict:
    """What turns one version's options into the next one's."""
    gone = dict.fromkeys(before.keys() - after.keys())
    new = {flag: told for flag, told in after.items() if before.get(flag) != told}
    return dict(sorted((gone | new).items()))


def main(asked: Sequence[str]) -> None:
    known = options.raw()
    for version in asked or list(known):
        known[version] = ask(version, [])["options"]
        print(f"{version}: {len(known[version])} options")
    lines, before = [f'"about": {json.dumps(ABOUT)}'], {}
    for version in sorted(known, key=Version):
        told = ",\n".join(
            f" {json.dumps(k)}: {json.dumps(v)}" for k, v in changes(before, known[version]).items()
        )
        lines.append(f'"{version}": {{\n{told}\n}}')
        before = known[version]
    options.RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
