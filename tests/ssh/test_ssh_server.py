"""A real SGLang server on a node over ssh: asked, measured and stopped from here, or gone with its connection."""

import psutil
import pytest

from tests.processes import command_line, wait_for
from workbook import catalog
from workbook.serving.accuracy import ask
from workbook.serving.bench import Plan, Target, run_bench
from workbook.serving.server import Server, is_healthy
from workbook.serving.telemetry import Telemetry
from workbook.types import LaunchProfile, Status

pytestmark = [pytest.mark.ssh, pytest.mark.slow]


def servers(port: int) -> list[int]:
    """Living SGLang servers on this port."""
    found = [one.pid for one in psutil.process_iter() if "sglang.launch_server" in command_line(one.pid)]
    return [pid for pid in found if str(port) in command_line(pid)]


def test_a_server_on_a_node_over_ssh(far, sshd, tmp_path):
    profile = catalog.load(LaunchProfile, "tiny-cpu")
    told: list[str] = []
    with (
        Telemetry(far, tmp_path / "telemetry.log") as telemetry,
        Server(far, profile, log=tmp_path / "server.log", label="far", on_progress=told.append) as server,
    ):
        assert is_healthy(server.url) and server.url != server.node_url
        assert "ready" in told[-1] and servers(server.port)
        answers = ask(
            far,
            server.node_url,
            name="a",
            raw=tmp_path / "a.jsonl",
            prompts=4,
            output_tokens=8,
            concurrency=2,
        )
        assert [len(one.tokens) for one in answers.answers] == [8] * 4
        target = Target("far", server.node_url, server.model_path, server.death)
        plan = Plan((2,), input_tokens=16, output_tokens=8, repeats=1)
        (point,) = run_bench(
            far, [target], plan, raw_dir=tmp_path / "raw", run_id="run", env=profile.env
        ).points
        assert point.usable and point.server_tok_s == pytest.approx(point.output_tok_s)
    assert server.outcome.status is Status.OK and server.outcome.left_behind == ()
    assert not servers(server.port) and telemetry.samples() == []
    first = (tmp_path / "server.log").read_text().splitlines()[0]
    assert first[:4].isdigit() and first[10] == "T" and first[23:25] == "Z "


def test_a_cut_connection_leaves_no_server_on_the_node(far, sshd, tmp_path):
    profile = catalog.load(LaunchProfile, "tiny-cpu")
    with Server(far, profile, log=tmp_path / "server.log") as server:
        for one in sshd.sessions():
            one.kill()
        wait_for(lambda: not servers(server.port), 60)
        wait_for(lambda: server.death() is not None, 60)
    assert server.outcome.status is Status.CRASHED
    assert "connection to node far" in server.outcome.reason and "was lost" in server.outcome.reason
