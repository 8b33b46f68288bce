"""Fixtures that every test can use. Nothing a test does touches the checkout's own runs or reports."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tiny_stacks import make_world
from workbook import catalog
from workbook.node.connect import connect
from workbook.node.probe import flashinfer_dir
from workbook.types import Stack

BIN = Path(sys.executable).parent

# A shell that puts the tests in the background has them ignore SIGINT, and what they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A folder of runs of the test's own."""
    folder = tmp_path / "runs"
    monkeypatch.setenv("WORKBOOK_RUNS", str(folder))
    return folder


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Small stacks of the test's own, with wheels for them."""
    return make_world(tmp_path, monkeypatch)


@pytest.fixture(scope="session")
def node():
    return connect("local")


@pytest.fixture(scope="session")
def embedded(node):
    """The default stack, with its FlashInfer in place."""
    stack = catalog.load(Stack, "embedded")
    if not flashinfer_dir(node, stack).is_dir():
        pytest.skip(f"FlashInfer {stack.flashinfer} is not set up (make setup)")
    return stack


@dataclass(frozen=True)
class Campaign:
    """A finished `workbook run`: what it printed, and where it put things."""

    stdout: str
    runs: Path
    report: Path
    environment: dict


@pytest.fixture(scope="session")
def campaign(tmp_path_factory, embedded):
    """One whole campaign, as `make report` runs it, from a working directory elsewhere; made once."""
    folder = tmp_path_factory.mktemp("campaign")
    places = {"WORKBOOK_RUNS": str(folder / "runs"), "WORKBOOK_REPORTS": str(folder / "reports")}
    environment = os.environ | places
    done = subprocess.run(
        [BIN / "workbook", "run", "--campaign", "test", "-p", "repeats=2"],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Campaign(
        done.stdout,
        folder / "runs" / "test",
        folder / "reports" / "test" / "index.html",
        environment,
    )
