"""From a launch profile, which states the intent, to the command line of one SGLang version.

Flags change between releases. The rules below were checked against the argument parser of every release from
OLDEST to NEWEST (tests/data/sglang_options.json keeps what they take); any other is refused, not guessed at.
"""

import os
import shlex
from collections.abc import Mapping, Sequence

from packaging.version import InvalidVersion, Version

from workbook.errors import UsageError
from workbook.paths import OVERLAY
from workbook.types import CaptureMode, LaunchProfile

OLDEST, NEWEST = Version("0.5.9"), Version("0.5.23")
PIECEWISE_BY_DEFAULT = Version("0.5.10")
BREAKABLE_ADDED = Version("0.5.11")
NSA_RENAMED_DSA = Version("0.5.13")
BACKEND_PER_PHASE = Version("0.5.14")
PIECEWISE_REMOVED = Version("0.5.22")

# how `--cuda-graph-backend-{decode,prefill}` spell a capture mode
BACKENDS = {
    CaptureMode.EAGER: ("disabled", "disabled"),
    CaptureMode.DECODE_GRAPHS: ("full", "disabled"),
    CaptureMode.PIECEWISE: ("full", "tc_piecewise"),
    CaptureMode.BREAKABLE: ("full", "breakable"),
}
# the flags that came before them; an opt-in flag in 0.5.9, opt-out from 0.5.10 on
OPT_IN = {
    CaptureMode.EAGER: ("--disable-cuda-graph",),
    CaptureMode.DECODE_GRAPHS: (),
    CaptureMode.PIECEWISE: ("--enable-piecewise-cuda-graph",),
}
OPT_OUT = {
    CaptureMode.EAGER: ("--disable-cuda-graph", "--disable-piecewise-cuda-graph"),
    CaptureMode.DECODE_GRAPHS: ("--disable-piecewise-cuda-graph",),
    CaptureMode.PIECEWISE: ("--enforce-piecewise-cuda-graph",),
    CaptureMode.BREAKABLE: ("--enforce-piecewise-cuda-graph", "--enable-breakable-cuda-graph"),
}


def server_argv(
    profile: LaunchProfile,
    sglang_version: str,
    *,
    python: str,
    model_path: str,
    port: int,
    tp: int | None = None,
) -> list[str]:
    """The command that starts this profile's server with this SGLang, on the loopback interface.

    Args:
        profile: the intent.
        sglang_version: the SGLang that will read the flags, such as "0.5.12".
        python: the Python that has it.
        model_path: a folder or Hugging Face name.
        port: TCP port.
        tp: tensor-parallel size, where it is not the profile's.

    Raises:
        UsageError: this SGLang cannot do what the profile asks, or its flags are not known.
    """
    version = known_version(sglang_version)
    attention = "nsa" if version < NSA_RENAMED_DSA else "dsa"
    choices = {
        "--model-path": model_path,
        "--load-format": profile.load_format,
        "--device": profile.device,
        "--tp-size": tp or profile.tp,
        "--quantization": profile.quantization,
        "--attention-backend": profile.attention_backend,
        "--moe-runner-backend": profile.moe_runner,
        f"--{attention}-decode-backend": profile.nsa_decode_backend,
        f"--{attention}-prefill-backend": profile.nsa_prefill_backend,
        "--mem-fraction-static": profile.memory_fraction,
        "--host": "127.0.0.1",
        "--port": port,
    }
    options = [part for flag, value in choices.items() if value is not None for part in (flag, str(value))]
    capture = capture_flags(profile, version)
    return [python, "-m", "sglang.launch_server", *options, *capture, *profile.extra_flags]


def known_version(text: str) -> Version:
    """The version, if its flags were checked.

    Raises:
        UsageError: it is not a version, or not one that was checked.
    """
    try:
        version = Version(text)
    except InvalidVersion:
        raise UsageError(f"{text!r} is not an SGLang version;", "write it as 0.5.12.") from None
    if version.is_prerelease or not OLDEST <= Version(version.base_version) <= NEWEST:
        raise UsageError(
            f"The launch flags of SGLang {text} are not known (checked: {OLDEST} to {NEWEST}).",
            "Use a stack with one of those, or read its flags and extend workbook/serving/launch.py.",
        )
    return version


def capture_flags(profile: LaunchProfile, version: Version) -> Sequence[str]:
    """The flags that make this version capture what the profile asks for, and nothing else.

    Raises:
        UsageError: this version, or the profile's device, has no such capture.
    """
    mode = profile.capture_mode
    if profile.device == "cpu":
        if mode is not CaptureMode.EAGER:
            raise UsageError(
                f"Profile {profile.name} asks for capture_mode {mode.value}, but a CPU has no CUDA graphs;",
                "use capture_mode: eager, or a profile with device: cuda.",
            )
        return ()  # nothing to switch off
    if mode is CaptureMode.PIECEWISE and version >= PIECEWISE_REMOVED:
        raise UsageError(
            f"SGLang {version} has no piecewise capture: it was removed in {PIECEWISE_REMOVED};",
            "use capture_mode: breakable, its successor, or a stack with an older SGLang.",
        )
    if mode is CaptureMode.BREAKABLE and version < BREAKABLE_ADDED:
        raise UsageError(
            f"SGLang {version} has no breakable capture: it came with {BREAKABLE_ADDED};",
            "use capture_mode: piecewise, or a stack with a newer SGLang.",
        )
    if version >= BACKEND_PER_PHASE:
        decode, prefill = BACKENDS[mode]
        return ("--cuda-graph-backend-decode", decode, "--cuda-graph-backend-prefill", prefill)
    return (OPT_OUT if version >= PIECEWISE_BY_DEFAULT else OPT_IN)[mode]


def server_env(
    profile: LaunchProfile, *, patch_level: int = 0, pythonpath: str | None = None
) -> dict[str, str]:
    """What the server's environment has beyond the node's own.

    Args:
        profile: whose `env` it is.
        patch_level: the patch level under which SGLang runs.
        pythonpath: the PYTHONPATH that the node has already, else this process's; the overlay goes before it.
    """
    env = dict(profile.env)
    if patch_level:
        env["WORKBOOK_PATCH_LEVEL"] = str(patch_level)
    if any(name.startswith("WORKBOOK_") for name in env):
        rest = os.environ.get("PYTHONPATH", "") if pythonpath is None else pythonpath
        env["PYTHONPATH"] = os.pathsep.join(part for part in (str(OVERLAY), rest) if part)
    return env


def pasteable(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """The command as one line that a POSIX shell takes as it is, environment included."""
    return shlex.join(["env", *(f"{name}={value}" for name, value in env.items()), *argv])
