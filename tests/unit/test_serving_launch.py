"""From a launch profile to the flags of one SGLang version."""

import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbook.catalog import load, names
from workbook.errors import UsageError
from workbook.paths import OVERLAY
from workbook.serving.launch import pasteable, server_argv, server_env
from workbook.types import CaptureMode, LaunchProfile

OPTIONS = json.loads((Path(__file__).parents[1] / "data" / "sglang_options.json").read_text())
VERSIONS = [name for name in OPTIONS if name != "about"]


def profile(**changes: object) -> LaunchProfile:
    base = {
        "name": "test", "description": "", "model": "org/model", "concurrencies": (1,),
        "input_tokens": 8, "output_tokens": 8,
    }  # fmt: skip
    return LaunchProfile.model_validate(base | changes)


def argv(asked: LaunchProfile, version: str, **changes: object) -> list[str]:
    return server_argv(asked, version, **({"python": "python", "model_path": "m", "port": 1} | changes))


def capture_part(mode: str, version: str) -> list[str]:
    flags = argv(profile(capture_mode=mode), version)
    return flags[flags.index("--port") + 2 :]


@pytest.mark.parametrize(
    ("version", "mode", "flags"),
    [
        ("0.5.9", "eager", "--disable-cuda-graph"),
        ("0.5.9", "decode-graphs", ""),
        ("0.5.9", "piecewise", "--enable-piecewise-cuda-graph"),
        ("0.5.10", "piecewise", "--enforce-piecewise-cuda-graph"),
        ("0.5.12", "eager", "--disable-cuda-graph --disable-piecewise-cuda-graph"),
        ("0.5.12", "decode-graphs", "--disable-piecewise-cuda-graph"),
        ("0.5.12", "piecewise", "--enforce-piecewise-cuda-graph"),
        ("0.5.12.post1", "breakable", "--enforce-piecewise-cuda-graph --enable-breakable-cuda-graph"),
        ("0.5.14", "piecewise", "--cuda-graph-backend-decode full --cuda-graph-backend-prefill tc_piecewise"),
        ("0.5.23", "eager", "--cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled"),
        ("0.5.23", "decode-graphs", "--cuda-graph-backend-decode full --cuda-graph-backend-prefill disabled"),
        ("0.5.23", "breakable", "--cuda-graph-backend-decode full --cuda-graph-backend-prefill breakable"),
    ],
)
def test_capture_mode_becomes_the_flags_of_the_version(version: str, mode: str, flags: str) -> None:
    assert capture_part(mode, version) == flags.split()


@pytest.mark.parametrize(
    ("version", "mode", "reason"),
    [
        ("0.5.22", "piecewise", "removed in 0.5.22; use capture_mode: breakable"),
        ("0.5.23", "piecewise", "removed in 0.5.22"),
        ("0.5.9", "breakable", "came with 0.5.11"),
        ("0.5.10.post1", "breakable", "came with 0.5.11"),
    ],
)
def test_a_capture_that_the_version_does_not_have_is_refused_with_the_reason(
    version: str, mode: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        capture_part(mode, version)


@pytest.mark.parametrize(
    "version", ["0.5.8", "0.5.8.post1", "0.5.24", "0.6.0", "1.0", "0.5.12rc1", "newest", ""]
)
def test_a_version_that_was_not_checked_is_refused_by_name(version: str) -> None:
    with pytest.raises(UsageError, match=version or "''"):
        argv(profile(), version)


@pytest.mark.parametrize("mode", [mode for mode in CaptureMode if mode is not CaptureMode.EAGER])
def test_a_cpu_captures_nothing(mode: CaptureMode) -> None:
    with pytest.raises(UsageError, match=f"{mode.value}.* CPU"):
        argv(profile(device="cpu", capture_mode=mode), "0.5.23")


def test_sparse_attention_is_called_dsa_from_0_5_13_on() -> None:
    asked = profile(nsa_decode_backend="tilelang", nsa_prefill_backend="fa3")
    old, new = argv(asked, "0.5.12"), argv(asked, "0.5.13")
    assert (
        old[old.index("--nsa-decode-backend") + 1] == new[new.index("--dsa-decode-backend") + 1] == "tilelang"
    )
    assert old[old.index("--nsa-prefill-backend") + 1] == new[new.index("--dsa-prefill-backend") + 1] == "fa3"


def test_tensor_parallel_size_is_the_profiles_unless_asked_otherwise() -> None:
    flags = argv(profile(tp=8), "0.5.12")
    assert flags[flags.index("--tp-size") + 1] == "8"
    flags = argv(profile(tp=8), "0.5.12", tp=2)
    assert flags[flags.index("--tp-size") + 1] == "2"


def misfits(flags: list[str], version: str) -> list[str]:
    """The flags that this version's recorded parser would not take."""
    known, todo, wrong = OPTIONS[version], flags[flags.index("sglang.launch_server") + 1 :], []
    while todo:
        flag = todo.pop(0)
        if flag not in known:
            wrong.append(flag)
        elif known[flag] is not None:
            value = todo.pop(0)
            if known[flag] and value not in known[flag]:
                wrong.append(f"{flag} {value}")
    return wrong


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", names(LaunchProfile))
def test_every_profile_fits_every_version_that_was_checked(name: str, version: str) -> None:
    asked, accepted = load(LaunchProfile, name), 0
    for mode in CaptureMode:
        try:
            flags = argv(asked.model_copy(update={"capture_mode": mode}), version)
        except UsageError:
            continue
        assert misfits(flags, version) == []
        accepted += 1
    assert accepted >= (1 if asked.device == "cpu" else 3)


def test_the_record_of_options_would_show_a_wrong_flag() -> None:
    wrong = ["python", "-m", "sglang.launch_server", "--cuda-graph-backend-prefill", "tc_piecewise"]
    assert misfits(wrong, "0.5.23") == ["--cuda-graph-backend-prefill tc_piecewise"]
    assert misfits([*wrong[:3], "--enable-piecewise-cuda-graph"], "0.5.12") == [
        "--enable-piecewise-cuda-graph"
    ]


text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(st.lists(text, min_size=1), st.dictionaries(st.from_regex(r"\A[A-Z_]+\Z"), text))
def test_the_pasteable_command_holds_exactly_the_arguments(command: list[str], env: dict[str, str]) -> None:
    assignments = [f"{name}={value}" for name, value in env.items()]
    assert shlex.split(pasteable(command, env)) == ["env", *assignments, *command]


def test_a_shell_takes_the_pasteable_command_as_it_is() -> None:
    odd = "$(id) `id` 'a' \"b\"; $HOME\n*"
    show = "import json, os, sys; print(json.dumps([os.environ['ODD'], sys.argv[1:]]))"
    line = pasteable([sys.executable, "-c", show, odd], {"ODD": odd})
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [odd, [odd]]


def test_the_overlay_goes_before_what_the_node_has() -> None:
    asked = profile(env={"WORKBOOK_CPU_SGLANG": "1"})
    assert server_env(asked, pythonpath="/a:/b")["PYTHONPATH"] == f"{OVERLAY}{os.pathsep}/a:/b"
    assert server_env(asked, pythonpath="")["PYTHONPATH"] == str(OVERLAY)


def test_a_patch_level_brings_the_overlay_and_no_level_brings_nothing() -> None:
    asked = profile(env={"NCCL_NVLS_ENABLE": "0"})
    assert server_env(asked) == {"NCCL_NVLS_ENABLE": "0"}
    patched = server_env(asked, patch_level=4, pythonpath="")
    assert patched == {"NCCL_NVLS_ENABLE": "0", "WORKBOOK_PATCH_LEVEL": "4", "PYTHONPATH": str(OVERLAY)}


PARSE = """
import argparse, json, sys
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
for argv in json.load(sys.stdin):
    parser.parse_args(argv)
print("parsed")
"""


@pytest.mark.slow
def test_the_installed_sglang_parses_every_profile() -> None:
    try:
        sglang = version("sglang")
    except PackageNotFoundError:
        pytest.skip("no sglang in this environment")
    commands = []
    for name in names(LaunchProfile):
        for mode in CaptureMode:
            try:
                flags = argv(load(LaunchProfile, name).model_copy(update={"capture_mode": mode}), sglang)
            except UsageError:
                continue
            commands.append(flags[flags.index("sglang.launch_server") + 1 :])
    env = {**os.environ, **server_env(load(LaunchProfile, "tiny-cpu"))}
    done = subprocess.run(
        [sys.executable, "-P", "-c", PARSE],
        input=json.dumps(commands),
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(commands) >= 3 and done.stdout.strip().endswith("parsed")
