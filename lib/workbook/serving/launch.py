"""From a launch profile, which states the intent, to the command line of one SGLang version.

Flags and their values change between releases. What each release takes is on record (`options`); which of them an
intent becomes is said here. What a release does not take is refused by name, before anything is started.
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from packaging.version import Version

from workbook.errors import UsageError
from workbook.paths import OVERLAY
from workbook.serving.options import in_full, known_version, misfit, recorded
from workbook.types import CaptureMode, LaunchProfile

PIECEWISE_BY_DEFAULT = Version("0.5.10")
BREAKABLE_ADDED = Version("0.5.11")
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
# SGLang's custom kernel goes before MSCCL++ and NCCL wherever the GPUs have NVLink
ALL_REDUCE = {
    "auto": (),
    "nccl": ("--disable-custom-all-reduce",),
    "mscclpp": ("--enable-mscclpp", "--disable-custom-all-reduce"),
}
MSCCLPP_SIZES = {
    Version("0.5.21"): (4, 8, 16, 32, 64),
    Version("0.5.14"): (8, 16, 32),
    Version("0.5.9"): (8, 16),
}
ONE_OR_ALL = (
    "flashinfer_cutlass",
    "flashinfer_cutedsl",
)  # runners that spread experts over all ranks or none

# The keys of a profile whose value becomes the value of one flag, newest spelling first.
VALUES = {
    "model": ("--model-path",),
    "load_format": ("--load-format",),
    "device": ("--device",),
    "tp": ("--tp-size",),
    "ep": ("--ep-size",),
    "quantization": ("--quantization",),
    "attention_backend": ("--attention-backend",),
    "moe_runner": ("--moe-runner-backend",),
    "moe_a2a": ("--moe-a2a-backend",),
    "nsa_decode_backend": ("--dsa-decode-backend", "--nsa-decode-backend"),
    "nsa_prefill_backend": ("--dsa-prefill-backend", "--nsa-prefill-backend"),
    "memory_fraction": ("--mem-fraction-static",),
}
# What extra_flags may not say, by the key that says it; what no key says is the workbook's own.
STATED = VALUES | {
    "all_reduce": ("--enable-mscclpp", "--disable-custom-all-reduce"),
    "capture_mode": (
        *("--cuda-graph-backend-decode", "--cuda-graph-backend-prefill", "--cuda-graph-config"),
        *("--disable-decode-cuda-graph", "--disable-prefill-cuda-graph", "--disable-cuda-graph"),
        *(
            "--enable-piecewise-cuda-graph",
            "--disable-piecewise-cuda-graph",
            "--enforce-piecewise-cuda-graph",
        ),
        "--enable-breakable-cuda-graph",
    ),
    "": ("--host", "--port", "--config"),
}

SECRET_FLAG = re.compile(r"(api-key|password|secret)$")
SECRET_NAME = re.compile(r"(TOKEN|(KEY|SECRET|PASSWORD)S?)(_|$)", re.IGNORECASE)  # not TOKENIZERS_PARALLELISM
NEW_LINE = "\\\n  "


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
        tp: tensor-parallel size, where it is not the profile's; a profile that spreads its experts over all ranks
            (`ep` equal to `tp`) still does.

    Raises:
        UsageError: this SGLang cannot do what the profile asks, or its command line is not on record.
    """
    version = known_version(sglang_version)
    profile = _resized(profile, tp)
    _check_parallel(profile, version)
    values = {**profile.model_dump(include=set(VALUES)), "model": model_path}
    argv = [python, "-m", "sglang.launch_server"]
    for key, spellings in VALUES.items():
        if values[key] is None or (key == "ep" and profile.ep == 1):
            continue
        flag = next((one for one in spellings if one in recorded()[version]), spellings[0])
        argv += _taken(profile, key, version, flag, str(values[key]))
    argv += ["--host", "127.0.0.1", "--port", str(port)]
    for key, switches in (
        ("all_reduce", ALL_REDUCE[profile.all_reduce]),
        ("capture_mode", capture_flags(profile, version)),
    ):
        for flag, *setting in switches_of(switches):
            argv += _taken(profile, key, version, flag, *setting)
    _check_extra(profile, version)
    return [*argv, *profile.extra_flags]


def _resized(profile: LaunchProfile, tp: int | None) -> LaunchProfile:
    if tp is None or tp == profile.tp:
        return profile
    if tp < 1:
        raise UsageError(f"tp = {tp} will not do:", "a tensor-parallel size is an integer of 1 or more.")
    ep = tp if 1 < profile.ep == profile.tp else profile.ep
    return profile.model_copy(update={"tp": tp, "ep": ep})


def _check_parallel(profile: LaunchProfile, version: Version) -> None:
    """Sizes that the parser takes, but at which the server stops, or quietly does something else."""
    start = f"Profile {profile.name} asks for"
    if profile.tp % profile.ep:
        raise UsageError(
            f"{start} ep {profile.ep}, which does not divide tp {profile.tp};", "mend one of them."
        )
    if profile.moe_runner in ONE_OR_ALL and profile.ep not in (1, profile.tp):
        raise UsageError(
            f"{start} ep {profile.ep} at tp {profile.tp}, but moe_runner {profile.moe_runner} takes 1 or all;",
            f"use ep: 1 or ep: {profile.tp}.",
        )
    if profile.all_reduce == "mscclpp":
        sizes = next(sizes for since, sizes in MSCCLPP_SIZES.items() if version >= since)
        if profile.tp not in sizes:
            raise UsageError(
                f"{start} all_reduce mscclpp at tp {profile.tp}, but MSCCL++ in SGLang {version} serves "
                f"{', '.join(map(str, sizes))} ranks and else quietly gives way to NCCL;",
                "use all_reduce: auto or another tp.",
            )
        if profile.capture_mode is CaptureMode.EAGER:
            raise UsageError(
                f"{start} all_reduce mscclpp with capture_mode eager, but SGLang uses MSCCL++ in CUDA graphs only;",
                "use all_reduce: auto, or another capture_mode.",
            )


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
            f"SGLang {version} has no piecewise capture: tc_piecewise was removed in {PIECEWISE_REMOVED};",
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


def _check_extra(profile: LaunchProfile, version: Version) -> None:
    """The profile's extra flags are some that this version takes, and none that says what a key says."""
    options = recorded()[version]
    stated = {options[flag].sets: key for key, flags in STATED.items() for flag in flags if flag in options}
    start = f"Profile {profile.name}, extra_flags:"
    for flag, *values in switches_of(profile.extra_flags):
        if not flag.startswith("-"):
            raise UsageError(
                f"{start} {flag!r} is no flag;", "a flag goes before its values and begins with --."
            )
        if SECRET_FLAG.search(flag):
            raise UsageError(
                f"{start} {flag} would put a secret on the command line, which all users of the node can read;",
                "leave it out: the server listens on the loopback interface only.",
            )
        meant = in_full(version, flag)
        if wrong := misfit(version, meant, values):
            raise UsageError(f"{start} {wrong}")
        key = stated.get(options[meant].sets)
        if key is not None:
            instead = f"say it with the key {key}." if key else "leave it out; the workbook sets it."
            raise UsageError(f"{start} {flag} does not belong there;", instead)


def switches_of(flags: Sequence[str]) -> Iterator[list[str]]:
    """Each flag with its values. `--flag=value` counts as two; so does a negative number after its flag."""
    group: list[str] = []
    for word in flags:
        if re.match(r"-(?!\d)", word) and group:
            yield group
            group = []
        group += word.split("=", 1) if word.startswith("--") else [word]
    if group:
        yield group


def _taken(profile: LaunchProfile, key: str, version: Version, flag: str, *values: str) -> list[str]:
    if values and values[0].startswith("-"):
        raise UsageError(f"Profile {profile.name}, {key}: {values[0]!r} begins with a dash;", "mend it.")
    if wrong := misfit(version, flag, values):
        raise UsageError(f"Profile {profile.name}, {key}: {wrong}")
    return [flag, *values]


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
    """The command for a POSIX shell to take as it is, environment included; a variable and an option a line.

    A variable whose name looks secret (TOKEN, KEY, SECRET, PASSWORD) is not shown: its value is to be in the shell
    that the command is pasted into, which says so where it is not.
    """
    words = ["env"]
    for name, value in env.items():
        shown = f'{name}="${{{name}:?}}"' if SECRET_NAME.search(name) else shlex.quote(f"{name}={value}")
        words.append(f"{NEW_LINE}{shown}")
    for number, word in enumerate(argv):
        begins = (env and number == 0) or word.startswith("--")
        words.append(f"{NEW_LINE if begins else ''}{shlex.quote(word)}")
    return " ".join(words)
