"""The doctor's verdicts, from facts. The samples say of themselves which was measured and which is made up."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from workbook import catalog
from workbook.doctor.check import Asked
from workbook.doctor.examine import judge
from workbook.doctor.facts import NodeFacts
from workbook.doctor.machine import MAX_SKEW_S, NETWORK
from workbook.doctor.toolkit import oldest_nvcc
from workbook.doctor.versions import read_lock, same
from workbook.paths import LOCKS
from workbook.types import LaunchProfile, Node, Stack

SAMPLES = Path(__file__).parents[1] / "data" / "doctor"


def sample(name, **changes):
    facts = json.loads((SAMPLES / f"{name}.json").read_text())
    del facts["about"]
    return NodeFacts.model_validate(facts | changes)


def asked(stack="seed", profile=None, **node):
    loaded = catalog.load(Stack, stack)
    server = catalog.load(LaunchProfile, profile) if profile else None
    return Asked(
        Node(name="box", stack=stack, **node),
        loaded,
        read_lock(loaded, "3.12.3"),
        "Run: how to get it",
        server,
    )


def verdicts(facts, question):
    return {check.name: check for check in judge(facts, question)}


def test_a_node_in_order_has_nothing_to_do():
    found = verdicts(sample("sm120"), asked(profile="glm5-nvfp4-tp8"))
    assert {name: check.verdict for name, check in found.items() if check.verdict != "ok"} == {}


def test_the_h200_that_was_measured():
    found = verdicts(sample("h200"), asked("hopper"))
    assert found["GPUs"].found == "1 x NVIDIA H200 (140.4 GiB)"
    assert (
        found["GPU architecture"].verdict == "warning"
        and "writes nothing" in found["GPU architecture"].remedy
    )
    for name in (
        "driver",
        "GPU memory",
        "CUDA toolkit",
        "C++ compiler",
        "ninja",
        "libcuda link",
        "torch",
        "clock",
    ):
        assert found[name].verdict == "ok", found[name]
    assert found["flashinfer-python"].verdict == "failed"
    assert found["flashinfer-python"].remedy == "Run: how to get it"
    assert "transformers 5.17.0 (locked: 5.6.0)" in found["other packages"].found
    assert found["/dev/shm"].verdict == found["peer access"].verdict == "not applicable"


def test_fp4_is_no_matter_to_a_profile_without_it():
    found = verdicts(sample("h200"), asked("hopper", "small-hopper"))
    assert found["GPU architecture"].verdict == "ok"


def test_sm120_with_cuda_12_6():
    found = verdicts(sample("sm120_cuda126"), asked())["CUDA toolkit"]
    assert found.verdict == "failed"
    assert found.needed == "nvcc 12.8 or later, for compute capability 12.0 with FlashInfer 0.6.3"
    assert "Install CUDA toolkit 12.9" in found.remedy and "CUDA_HOME" in found.remedy


def test_a_laptop_is_not_a_wall_of_red():
    found = verdicts(sample("laptop"), asked("embedded", "tiny-cpu"))
    assert {check.verdict for check in found.values()} == {"ok", "not applicable"}
    assert "nothing can be captured" in found["GPUs"].found
    assert found["flashinfer-python"].found == "0.6.3, in a folder of its own"


def test_a_gpu_profile_on_a_laptop_fails_where_it_should():
    found = verdicts(sample("laptop"), asked("embedded", "glm5-nvfp4-tp8"))
    failed = [name for name, check in found.items() if check.verdict == "failed"]
    assert failed == ["profile: GPUs", "profile: flags", "profile: model"]
    assert found["profile: flags"].found.startswith("SGLang 0.5.23 has no piecewise capture")
    assert found["profile: flags"].remedy.startswith("Use capture_mode: breakable")


def gpu(**changes):
    facts = json.loads((SAMPLES / "sm120.json").read_text())["gpus"]
    return {"gpus": [facts[0] | changes, *facts[1:]]}


def one_folder(purpose, **changes):
    facts = json.loads((SAMPLES / "sm120.json").read_text())["folders"]
    return {"folders": [one | (changes if one["purpose"] == purpose else {}) for one in facts]}


def packages(**changes):
    facts = json.loads((SAMPLES / "sm120.json").read_text())["packages"] | changes
    return {"packages": {name: version for name, version in facts.items() if version}}


def model(**changes):
    return {"model": {"path": "/m", "weights_gib": 1.0, "missing": 0, "offline": False} | changes}


HELD = {"pid": 4711, "name": "python3", "user": "alice", "memory_gib": 80.5}
NO_TOOL = {"path": "ninja", "version": None, "error": "not found"}
NVCC = "/usr/local/cuda/bin/nvcc"


def nvcc(version):
    return {"nvcc": {"path": NVCC, "version": version, "error": None if version else "not found"}}


@pytest.mark.parametrize(
    ("changes", "name", "verdict", "phrase"),
    [
        ({"gpus": [], "gpu_error": "Driver/library version mismatch"}, "GPUs", "failed", "nvidia-smi"),
        (gpu(compute_capability=[7, 0]), "GPU architecture", "failed", "Leave that GPU out"),
        (gpu(compute_capability=[10, 0]), "GPU architecture", "warning", "one kind"),
        ({"driver_cuda": "11.8"}, "driver", "failed", "branch 525 or later"),
        ({"driver_cuda": "12.4"}, "driver", "warning", "minor version compatibility"),
        ({"torch_cuda": None}, "driver", "failed", "workbook stack list"),
        (
            gpu(free_gib=14.5, holders=[HELD]),
            "GPU memory",
            "warning",
            "ends no process that it did not start",
        ),
        (gpu(free_gib=60.0), "GPU memory", "warning", "ask their owners"),
        (
            {"peers": [{"gpus": [0, 1], "read": False, "nvlink": False}]},
            "peer access",
            "warning",
            "topo -p2p r",
        ),
        (nvcc(None), "CUDA toolkit", "failed", "Install CUDA toolkit 12.9"),
        (nvcc("12.8"), "CUDA toolkit", "warning", "Install CUDA toolkit 12.9"),
        (nvcc("13.0"), "CUDA toolkit", "failed", "branch 580 or later"),
        (nvcc("13.0") | {"driver_cuda": "13.0"}, "CUDA toolkit", "warning", "toolkit of CUDA 12"),
        (
            nvcc("12.8") | packages(**{"flashinfer-python": "0.6.11.post1"}),
            "CUDA toolkit",
            "failed",
            "toolkit 12.9",
        ),
        ({"cxx": NO_TOOL}, "C++ compiler", "failed", "Install g++ 14"),
        ({"newest_gcc": 12}, "C++ compiler", "failed", "CC: gcc-12 and CXX: g++-12"),
        ({"cxx": {"path": "c++", "version": "12.2.0", "error": None}}, "C++ compiler", "warning", "g++-13"),
        ({"ninja": NO_TOOL}, "ninja", "failed", "first on PATH"),
        ({"ninja": NO_TOOL} | packages(ninja=""), "ninja", "failed", "pip install ninja"),
        ({"link_error": "ld: cannot find -lcuda: No such file"}, "libcuda link", "failed", "LIBRARY_PATH"),
        ({"link_error": "ld: cannot find -lcudart"}, "libcuda link", "failed", "CUDA_HOME"),
        (packages(torch=""), "torch", "failed", "stack create seed"),
        (packages(torch="2.11.0"), "torch", "warning", "stack: in data/nodes/box.yaml"),
        (packages(**{"flashinfer-python": ""}), "flashinfer-python", "failed", "how to get it"),
        (packages(**{"flashinfer-python": "0.7.4"}), "flashinfer-python", "warning", "stack create seed"),
        (packages(sglang=""), "sglang", "failed", "stack create seed"),
        (packages(**{"sgl-kernel": ""}), "sgl-kernel", "failed", "stack create seed"),
        (packages(triton="3.6.0"), "other packages", "warning", "stack create seed"),
        ({"available_gib": 1.2}, "host memory", "failed", "ps aux"),
        (one_folder("work", writable=False), "work folder", "failed", "WORKBOOK_STACKS"),
        (
            one_folder("FlashInfer", file_system="nfs4"),
            "FlashInfer cache",
            "warning",
            "FLASHINFER_WORKSPACE_BASE",
        ),
        (one_folder("Triton", noexec=True), "Triton cache", "warning", "TRITON_CACHE_DIR"),
        (one_folder("Inductor", free_gb=0.2), "Inductor cache", "warning", "TORCHINDUCTOR_CACHE_DIR"),
        (one_folder("SGLang", free_gb=3.0), "SGLang cache", "warning", "SGLANG_CACHE_DIR"),
        ({"shm_gib": 0.0625, "shm_free_gib": 0.0625}, "/dev/shm", "failed", "--shm-size"),
        ({"shm_free_gib": 0.5}, "/dev/shm", "failed", "ls -l /dev/shm"),
        ({"shm_gib": None, "shm_free_gib": None}, "/dev/shm", "failed", "tmpfs"),
        ({"free_port": False}, "ports", "failed", "ss -tan"),
        ({"default_port_free": False}, "ports", "warning", "sport = :30000"),
        ({"files_hard": 1024}, "open files", "failed", "ulimit -n 65535"),
        ({"clock": {"ahead_s": -40.0, "uncertainty_s": 0.1}}, "clock", "warning", "set-ntp"),
        ({"gpus": sample("sm120").model_dump()["gpus"][:4]}, "profile: GPUs", "failed", "lower tp"),
        (packages(sglang="0.5.8"), "profile: flags", "failed", "stack"),
        (
            model(path=None, weights_gib=None, offline=True),
            "profile: model",
            "failed",
            "hf download",
        ),
        (
            model(missing=3),
            "profile: model",
            "failed",
            "Fetch it again",
        ),
        (
            model(weights_gib=800.0),
            "profile: memory",
            "failed",
            "Raise tp",
        ),
        (gpu(free_gib=20.0), "profile: memory", "warning", "GPU memory"),
    ],
)
def test_what_is_amiss_is_named_with_what_to_do(changes, name, verdict, phrase):
    found = verdicts(sample("sm120", **changes), asked(profile="glm5-nvfp4-tp8"))[name]
    assert (found.verdict, phrase in found.remedy) == (verdict, True), found


def test_a_name_that_the_hub_may_have_is_a_warning_and_a_path_is_not():
    absent, question = sample("sm120", **model(path=None)), asked(profile="glm5-nvfp4-tp8")
    assert verdicts(absent, question)["profile: model"].verdict == "warning"
    at_path = question.profile.model_copy(update={"model": "/models/absent"})
    found = verdicts(absent, replace(question, profile=at_path))
    assert found["profile: model"].verdict == "failed"


def test_who_holds_a_gpu_is_said_by_pid():
    found = verdicts(sample("sm120", **gpu(free_gib=14.5, holders=[HELD])), asked())["GPU memory"]
    assert found.found == "GPU 0: 14.5 of 95.6 GiB free, held by pid 4711 (python3, alice, 80.5 GiB)"


def test_only_the_gpus_that_are_used_count():
    held = sample("sm120", **gpu(visible=False, holders=[HELD], compute_capability=[7, 0]))
    found = verdicts(held, asked(profile="glm5-nvfp4-tp8"))
    assert found["GPU architecture"].verdict == found["GPU memory"].verdict == "ok"
    assert found["GPUs"].found.endswith("; 1 more not used")
    assert found["profile: GPUs"].verdict == "failed"


def test_gpus_that_the_description_names_are_there():
    assert verdicts(sample("sm120"), asked(gpus=(0, 9)))["GPUs"].verdict == "failed"
    assert verdicts(sample("sm120"), asked(gpus=(0, 7)))["GPUs"].verdict == "ok"


def test_a_driver_that_does_not_answer_is_a_warning_where_no_gpu_is_asked_for():
    silent = sample("laptop", gpus_on_bus=1)
    assert verdicts(silent, asked("embedded"))["GPUs"].verdict == "warning"
    assert verdicts(silent, asked("embedded", "small-hopper"))["GPUs"].verdict == "failed"


def test_flashinfer_beside_the_cpu_server_is_refused():
    beside = sample("laptop", packages={"sglang": "0.5.23", "torch": "2.13.0", "flashinfer-python": "0.6.3"})
    assert verdicts(beside, asked("embedded"))["flashinfer-python"].verdict == "failed"


def test_a_remedy_fits_the_kind_of_node():
    broken = sample("sm120", **one_folder("work", file_system="nfs"))
    ssh = asked(kind="ssh", host="ssh://box")
    assert "work: in data/nodes/box.yaml" in verdicts(broken, ssh)["work folder"].remedy
    assert "locks/seed.txt" in verdicts(sample("sm120", **packages(torch="")), ssh)["torch"].remedy


@pytest.mark.parametrize("system", sorted(NETWORK))
def test_every_network_file_system_is_refused(system):
    found = verdicts(sample("sm120", **one_folder("work", file_system=system)), asked())
    assert found["work folder"].verdict == "failed"


@pytest.mark.parametrize(
    ("capability", "flashinfer", "oldest"),
    [
        ((8, 0), "0.6.3", "11.8"), ((9, 0), "0.6.3", "12.3"), ((10, 0), "0.6.3", "12.8"), ((10, 3), "0.6.3", "12.9"),
        ((11, 0), "0.6.3", "13.0"), ((12, 0), "0.6.3", "12.8"), ((12, 1), "0.6.3", "12.9"), ((12, 0), "0.6.6", "12.8"),
        ((12, 0), "0.6.7", "12.9"), ((12, 0), "0.6.11.post1", "12.9"), ((10, 0), "0.7.2", "12.8"),
        ((12, 0), None, "12.8"),
    ],
)  # fmt: skip
def test_the_oldest_nvcc(capability, flashinfer, oldest):
    assert oldest_nvcc(capability, Version(flashinfer) if flashinfer else None) == Version(oldest)


@pytest.mark.parametrize("name", catalog.names(Stack))
def test_a_lock_and_its_description_agree(name):
    stack = catalog.load(Stack, name)
    pinned = (LOCKS / f"{name}.txt").read_text().splitlines()
    assert {f"torch=={stack.torch}", f"sglang=={stack.sglang}"} <= set(pinned)


def test_a_lock_is_read_for_the_nodes_python():
    seed = catalog.load(Stack, "seed")
    lines = (LOCKS / "seed.txt").read_text().splitlines()
    for python, marker in (("3.11.7", 'python_version < "3.12"'), ("3.12.3", 'python_version >= "3.12"')):
        (line,) = (one for one in lines if one.startswith("networkx==") and one.endswith(marker))
        assert f"networkx=={read_lock(seed, python)['networkx']}; {marker}" == line


@pytest.mark.parametrize(
    ("found", "locked", "equal"),
    [("2.9.1+cu128", "2.9.1", True), ("2.9.1", "2.9.1+cu128", False), ("2.9.1+cu128", "2.9.1+cu128", True),
     ("0.4.2.post2", "0.4.2", False), ("1.0", "1.0.0", True), ("odd version", "odd version", True),
     ("odd", "1", False)],
)  # fmt: skip
def test_versions_against_a_lock(found, locked, equal):
    assert same(found, locked) is equal


@settings(deadline=None)
@given(st.floats(-1e5, 1e5), st.floats(0, 1e5))
def test_a_clock_is_blamed_only_for_what_the_round_trip_proves(ahead, unsure):
    found = verdicts(sample("sm120", clock={"ahead_s": ahead, "uncertainty_s": unsure}), asked())["clock"]
    assert (found.verdict == "warning") == (abs(ahead) - unsure > MAX_SKEW_S)


def any_of(**fields):
    return st.fixed_dictionaries(fields)


VERSION = st.sampled_from([None, "9.1", "11.8", "12.6", "12.8", "13.0", "15", "odd"])
TOOL = any_of(path=st.text(max_size=5), version=VERSION, error=st.none() | st.text(max_size=5))
ANY_GPU = any_of(
    index=st.integers(0, 3),
    uuid=st.text(max_size=5),
    name=st.text(max_size=9),
    compute_capability=st.tuples(st.integers(5, 13), st.integers(0, 3)),
    memory_gib=st.floats(1, 300),
    free_gib=st.floats(0, 300),
    holders=st.lists(st.just(HELD | {"name": None, "user": None, "memory_gib": None}), max_size=2),
    visible=st.booleans(),
)
ANY_PEERS = any_of(
    gpus=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    read=st.none() | st.booleans(),
    nvlink=st.none() | st.booleans(),
)
ANY_MODEL = any_of(
    path=st.none() | st.text(max_size=5),
    weights_gib=st.none() | st.floats(0, 2000),
    missing=st.integers(0, 3),
    offline=st.booleans(),
)
INSTALLED = st.dictionaries(
    st.sampled_from(["torch", "sglang", "flashinfer-python", "sgl-kernel", "ninja"]),
    st.sampled_from(["2.9.1", "0.5.9", "0.5.23", "odd"]),
)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "gpus": st.lists(ANY_GPU, max_size=3),
        "gpu_error": st.none() | st.text(max_size=5),
        "gpus_on_bus": st.integers(0, 2),
        "driver": st.none() | st.text(max_size=5),
        "driver_cuda": VERSION,
        "torch_cuda": VERSION,
        "peers": st.lists(ANY_PEERS, max_size=3),
        "nvcc": TOOL,
        "cxx": TOOL,
        "ninja": TOOL,
        "newest_gcc": st.none() | st.integers(9, 16),
        "link_error": st.none() | st.text(max_size=5),
        "packages": INSTALLED,
        "flashinfer_folder": st.none() | st.just("0.6.3"),
        "model": st.none() | ANY_MODEL,
        "shm_gib": st.none() | st.floats(0, 9),
        "shm_free_gib": st.none() | st.floats(0, 9),
        "files_soft": st.none() | st.integers(1, 10**6),
        "files_hard": st.none() | st.integers(1, 10**6),
    },
)


@settings(deadline=None)
@given(
    st.sampled_from(["sm120", "h200", "laptop"]),
    CHANGES,
    st.sampled_from(catalog.names(Stack)),
    st.sampled_from([None, *catalog.names(LaunchProfile)]),
)
def test_whatever_a_node_says_there_is_a_verdict_and_a_remedy_where_one_is_due(name, changes, stack, profile):
    checks = judge(sample(name, **changes), asked(stack, profile))
    for check in checks:
        due = check.verdict in ("warning", "failed")
        assert bool(check.remedy) == due, check
        assert check.found and (check.needed or not due), check
    names = [check.name for check in checks]
    assert len(names) == len(set(names))


def test_hostile_text_of_a_node_is_made_harmless():
    facts = sample(
        "sm120", **gpu(name="\x1b]0;title\x07\x1b[2JGPU\u202e\nrow", holders=[HELD | {"name": "\x1b[31mx\r"}])
    )
    found = verdicts(facts, asked())
    shown = " ".join(check.found for check in found.values())
    assert "GPU[U+202E] row" in shown and shown.isprintable()
