"""From a launch profile to the flags of one SGLang version."""

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbook.catalog import load, names
from workbook.errors import UsageError
from workbook.paths import OVERLAY
from workbook.serving.launch import pasteable, server_argv, server_env
from workbook.serving.options import recorded
from workbook.types import CaptureMode, LaunchProfile

CASE = "0.5.9"


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


def test_experts_spread_over_all_ranks_stay_so_at_another_size() -> None:
    spread = profile(tp=8, ep=8)
    for tp, flags in ((None, "--tp-size 8 --ep-size 8"), (4, "--tp-size 4 --ep-size 4")):
        assert flags in " ".join(argv(spread, CASE, tp=tp))
    assert "--ep-size" not in argv(profile(tp=1), CASE, tp=8)


@pytest.mark.parametrize("tp", [0, -1])
def test_a_size_below_one_is_refused(tp: int) -> None:
    with pytest.raises(UsageError, match=f"tp = {tp} .* 1 or more"):
        argv(profile(), CASE, tp=tp)


@pytest.mark.parametrize(
    ("changes", "version", "flags"),
    [
        ({}, CASE, ""),
        ({"all_reduce": "nccl"}, CASE, "--disable-custom-all-reduce"),
        ({"all_reduce": "mscclpp", "tp": 8}, CASE, "--enable-mscclpp --disable-custom-all-reduce"),
        ({"all_reduce": "mscclpp", "tp": 4}, "0.5.21", "--enable-mscclpp --disable-custom-all-reduce"),
    ],
)
def test_an_all_reduce_puts_the_kernel_before_it_out_of_the_way(
    changes: dict[str, object], version: str, flags: str
) -> None:
    assert (
        " ".join(argv(profile(**changes), version))
        .partition(" --port 1")[2]
        .startswith(f" {flags}" if flags else "")
    )
    assert ("--enable-mscclpp" in argv(profile(**changes), version)) == ("mscclpp" in flags)


@pytest.mark.parametrize(
    ("changes", "version", "words"),
    [
        ({"moe_runner": "cutlas"}, CASE, "test, moe_runner: SGLang 0.5.9 .* cutlas; did you mean cutlass?"),
        ({"attention_backend": "falshinfer"}, "0.5.12", "attention_backend: .*did you mean flashinfer?"),
        ({"nsa_decode_backend": "triton"}, CASE, "nsa_decode_backend: .*; it takes aiter, fa3, .*tilelang"),
        ({"nsa_decode_backend": "tilelan"}, "0.5.23", "--dsa-decode-backend tilelan; did you mean tilelang?"),
        ({"quantization": "modelopt_pf4"}, CASE, "did you mean modelopt_fp4?"),
        ({"moe_a2a": "deepp"}, CASE, "moe_a2a: .*did you mean deepep?"),
        ({"moe_a2a": "deepep_v2"}, CASE, "--moe-a2a-backend deepep_v2; did you mean deepep?"),
        ({"tp": 8, "ep": 3}, CASE, "ep 3, which does not divide tp 8"),
        ({"tp": 8, "ep": 2, "moe_runner": "flashinfer_cutlass"}, CASE, "takes 1 or all; use ep: 1 or ep: 8"),
        ({"tp": 4, "all_reduce": "mscclpp"}, CASE, "mscclpp at tp 4, .* serves 8, 16 ranks"),
        ({"tp": 8, "all_reduce": "mscclpp", "capture_mode": "eager"}, CASE, "in CUDA graphs only"),
        ({"quantization": "--host"}, CASE, "quantization: '--host' begins with a dash"),
    ],
)
def test_what_a_version_does_not_take_is_refused_by_name_with_the_nearest(
    changes: dict[str, object], version: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        argv(profile(**changes), version)


@pytest.mark.parametrize(
    ("flags", "version", "words"),
    [
        (["--enable-metric"], CASE, "SGLang 0.5.9 has no --enable-metric; did you mean --enable-metrics?"),
        (["--dsa-topk-backend", "torch"], CASE, "0.5.9 has no --dsa-topk-backend"),
        (["--tp", "4"], CASE, "--tp does not belong there; say it with the key tp."),
        (["--tensor-parallel-size=4"], CASE, "say it with the key tp"),
        (["--expert-parallel-size", "4"], "0.5.23", "say it with the key ep"),
        (["--enable-metrics", "--port", "4"], CASE, "--port does not belong there; leave it out"),
        (["--host", "0.0.0.0"], CASE, "--host does not belong there; leave it out"),
        (["--config", "my.yaml"], CASE, "--config does not belong there"),
        (["--disable-cuda-graph"], "0.5.23", "say it with the key capture_mode"),
        (["--nsa-decode-backend", "fa3"], "0.5.16", "say it with the key nsa_decode_backend"),
        (["--enforce-piecewise-cuda-graph"], "0.5.16", "say it with the key capture_mode"),
        (["--cuda-graph-config", "{}"], "0.5.23", "say it with the key capture_mode"),
        (["--enable-piecewise-cuda-graph"], "0.5.12", "has no --enable-piecewise-cuda-graph"),
        (["--page-size", "many"], CASE, "--page-size takes a whole number, not 'many'"),
        (["--page-size"], CASE, "--page-size needs a value"),
        (["--page-size", "1", "2"], CASE, "--page-size takes 1 value, not 2"),
        (["--enable-metrics", "yes"], CASE, "is a switch and takes no value, so not 'yes'"),
        (["--kv-cache-dtype", "fp8"], CASE, "does not take --kv-cache-dtype fp8; "),
        (["metrics"], CASE, "'metrics' is no flag"),
        (["-h"], CASE, "has no -h"),
        (["--api-key", "hunter2"], CASE, "--api-key would put a secret on the command line"),
    ],
)
def test_extra_flags_are_checked_like_any_other(flags: list[str], version: str, words: str) -> None:
    with pytest.raises(UsageError, match=words.replace("?", r"\?")) as caught:
        argv(profile(extra_flags=flags), version)
    assert "hunter2" not in str(caught.value)


def test_extra_flags_with_many_values_or_a_negative_one_pass_as_they_are() -> None:
    flags = ["--cuda-graph-bs", "1", "2", "4", "--swa-full-tokens-ratio=0.5", "--chunked-prefill-size", "-1"]
    assert argv(profile(extra_flags=flags), CASE)[-len(flags) :] == flags


@pytest.mark.parametrize("version", [str(one) for one in recorded()])
@pytest.mark.parametrize("name", names(LaunchProfile))
def test_every_profile_becomes_a_command_of_every_version_on_record(name: str, version: str) -> None:
    asked = load(LaunchProfile, name)
    translated, reasons = set(), []
    for mode in CaptureMode:
        try:
            argv(asked.model_copy(update={"capture_mode": mode}), version)
            translated.add(mode)
        except UsageError as refusal:
            reasons.append(str(refusal))
    if asked.device == "cpu":
        assert translated == {CaptureMode.EAGER}
    else:
        assert {CaptureMode.DECODE_GRAPHS} < translated and len(translated) >= 2
    known = ("a CPU has no CUDA graphs", "removed in 0.5.22", "came with 0.5.11", "in CUDA graphs only")
    assert all(any(one in reason for one in known) for reason in reasons)


def test_the_siblings_of_the_case_differ_from_it_in_one_thing() -> None:
    case = load(LaunchProfile, "glm5-nvfp4-tp8").model_dump()
    for name, told in (("mscclpp", {"all_reduce": "mscclpp"}), ("ep8", {"ep": 8})):
        sibling = load(LaunchProfile, f"glm5-nvfp4-tp8-{name}").model_dump()
        differing = {key: sibling[key] for key in case if sibling[key] != case[key]}
        assert {key: differing[key] for key in differing.keys() - {"name", "description", "note"}} == told


def test_a_build_of_a_version_is_that_version() -> None:
    assert argv(profile(), "0.5.12+cu130") == argv(profile(), "0.5.12")


def run_in_a_shell(command: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    env = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(["sh", "-c", command], env=env, capture_output=True, timeout=60)


def words_of(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    """What it printed, each word with a zero byte after it."""
    return done.stdout.decode().split("\0")[:-1]


text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@settings(deadline=None)
@given(st.lists(text), st.dictionaries(st.from_regex(r"\AW_[A-Z_]+(X)\Z"), text))
def test_a_shell_makes_of_the_pasteable_command_exactly_the_arguments(
    arguments: list[str], env: dict[str, str]
) -> None:
    shown = run_in_a_shell(pasteable(["printf", "%s\\0", "start", *arguments], env))
    assert words_of(shown) == ["start", *arguments]
    seen = dict(word.split("=", 1) for word in words_of(run_in_a_shell(pasteable(["env", "-0"], env))))
    assert {name: seen[name] for name in env} == env


def test_the_pasteable_command_has_a_variable_and_an_option_a_line() -> None:
    lines = pasteable(["python", "-m", "x", "--a", "1 2", "--b"], {"A": "b c"}).splitlines()
    assert lines == ["env \\", "  'A=b c' \\", "  python -m x \\", "  --a '1 2' \\", "  --b"]
    assert pasteable(["python", "x"], {}) == "env python x"


@pytest.mark.parametrize("name", ["HF_TOKEN", "API_KEY", "aws_secret_access_key", "PGPASSWORD", "MY_SECRETS"])
def test_a_secret_is_shown_as_a_reference_that_the_shell_resolves(name: str) -> None:
    line = pasteable([sys.executable, "-c", f"import os; print(os.environ[{name!r}])"], {name: "hunter2"})
    assert "hunter2" not in line and f'{name}="${{{name}:?}}"' in line
    assert run_in_a_shell(line, **{name: "its $own `value`"}).stdout == b"its $own `value`\n"
    missing = run_in_a_shell(line)
    assert missing.returncode != 0 and name.encode() in missing.stderr


@pytest.mark.parametrize(
    "name", ["TOKENIZERS_PARALLELISM", "SGLANG_MAX_TOKENS", "HF_HUB_OFFLINE", "KEYBOARD"]
)
def test_what_only_resembles_a_secret_is_shown(name: str) -> None:
    assert f"{name}=1" in pasteable(["python"], {name: "1"})


def test_the_overlay_goes_before_what_the_node_has() -> None:
    asked = profile(env={"WORKBOOK_CPU_SGLANG": "1"})
    assert server_env(asked, pythonpath="/a:/b")["PYTHONPATH"] == f"{OVERLAY}{os.pathsep}/a:/b"
    assert server_env(asked, pythonpath="")["PYTHONPATH"] == str(OVERLAY)


def test_a_patch_level_brings_the_overlay_and_no_level_brings_nothing() -> None:
    asked = profile(env={"NCCL_NVLS_ENABLE": "0"})
    assert server_env(asked) == {"NCCL_NVLS_ENABLE": "0"}
    patched = server_env(asked, patch_level=4, pythonpath="")
    assert patched == {"NCCL_NVLS_ENABLE": "0", "WORKBOOK_PATCH_LEVEL": "4", "PYTHONPATH": str(OVERLAY)}
