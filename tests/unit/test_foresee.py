"""What is made of a forecast's answer, and what is refused before anything is asked."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbook import catalog
from workbook.boundary import foresee as asking
from workbook.boundary.foresee import foresee, judge, not_told, without_weights
from workbook.boundary.model_files import (
    architecture_of,
    few_layers,
    layers_of,
    model_files,
    profile_for,
)
from workbook.errors import UsageError
from workbook.serving import model_configs
from workbook.types import Foretold, LaunchProfile, Stack, Status

CASE = catalog.load(LaunchProfile, "glm5-nvfp4-tp8")
SEED = catalog.load(Stack, "seed")
TOLD = {
    "profile": CASE,
    "stack": SEED,
    "arch": "sm120",
    "tp": 8,
    "rank": 0,
    "patch_level": 0,
    "layers": 78,
}
SKIPPED = (
    "Attempted to call function marked as skipped\n  Explanation: Dynamo does not know how to trace it.\n\n"
    "  Developer debug context: module: _thread, qualname: allocate_lock, skip reason: <missing reason>\n\n"
    " For more details about this graph break, please visit: https://example.com/gb/gb0007.html\n\n"
    "from user code:\n   File somewhere"
)
STACK = [
    {"file": "sglang/srt/layers/linear.py", "line": 451, "function": "forward", "code": "apply()"},
    {"file": "flashinfer/jit/cpp_ext.py", "line": 49, "function": "get_cuda_path", "code": "run()"},
    {"file": "threading.py", "line": 1, "function": "__init__", "code": ""},
]
GRAPH = {
    "pieces": 157,
    "split": 78,
    "compiled": 79,
    "split_ops": {"sglang.unified_attention_with_output": 78},
    "operations": {"sglang.unified_attention_with_output": 78},
    "nodes": 4000,
}


def stop(**changes):
    """A stop as the probe tells it."""
    error = {
        "type": "torch._dynamo.exc.Unsupported",
        "message": SKIPPED,
        "gb_type": "Attempted to call function marked as skipped",
        "stack": STACK,
    }
    told = {
        "error": error | changes.pop("error", {}),
        "layer": "model.layers.0.mlp",
        "seconds": 1.5,
        "passed": "opaque",
        "how": "is an operator",
        "level": 4,
        "rests_on_stand_in": False,
    }
    return told | changes


END = {"error": None, "layer": "", "seconds": 2.0, "passed": "end", "how": "the trace reaches its end"}


def answer(**changes):
    """What the probe answers of a model that traces."""
    return {
        "stage": "compiled",
        "error": None,
        "compiled": True,
        "stops": [],
        "graphs": [GRAPH, GRAPH],
        "pool_bytes": 3 << 30,
        "capture_sizes": [4, 8, 2048],
        "compiled_sizes": [2048, 4],
        "architecture": "GlmMoeDsaForCausalLM",
        "layers": 78,
        "weights_gib": 60.0,
        "seconds": {"load": 1.0},
        "peak_gib": 0.9,
        "switches": [],
        "applied": [],
        "chosen": {"attention_backend": "flashinfer"},
        "declared": {
            "inputs": "fake CUDA tensors",
            "compute_capability": (12, 0),
            "cuda_version": "12.8",
            "cuda_version_source": "declared",
            "arch_list": "12.0a",
            "cuda_home": None,
        },
        "gpu": "a GPU",
        "stand_ins": ["weights: none"],
        "versions": {"sglang": "0.5.9"},
    } | changes


def stopped(*stops, **changes):
    return judge(TOLD, answer(stops=[*stops], compiled=False, graphs=[], compiled_sizes=[], **changes), [])


def test_a_model_that_traces_has_its_pieces_and_what_its_graphs_will_take():
    found = judge(TOLD, answer(), ["--model-path", "MODEL"])
    assert found.outcome is Foretold.TRACES and found.reason == ""
    assert found.blockers == () and [one.pieces for one in found.graphs] == [157, 157]
    assert found.memory.graphs == 79 * 3 and found.memory.pool_gib == 3
    once = found.memory.total_gib - (3 + 79 * 3 * found.memory.per_graph_mib / 1024)
    assert -1e-9 < once < 0.1  # what any capture takes, whatever is captured
    assert "2048 tokens" in found.memory.basis and "H200" in found.memory.basis
    assert found.declared.input_shapes == ("int64 (2048,)", "int64 (4,)")
    assert (found.model_layers, found.layers, found.argv) == (78, 78, ("--model-path", "MODEL"))


def test_a_stop_is_told_with_its_chain_its_layer_and_the_level_that_gets_past_it():
    found = stopped(stop(), END)
    assert found.outcome is Foretold.STOPS and found.memory is None
    assert found.reason == "_thread.allocate_lock in flashinfer.jit.cpp_ext:get_cuda_path:49"
    first, end = found.blockers
    assert (first.order, first.layer, first.break_id) == (1, "model.layers.0.mlp", "gb0007")
    assert [frame.lane.value for frame in first.frames] == ["sglang", "flashinfer", "standard library"]
    assert first.past_level == 4 and first.past.startswith("patch level 4 (custom-op): ")
    assert (end.order, end.status, end.blamed, end.past) == (2, Status.OK, None, "nothing is left")
    assert end.past_level is None


@pytest.mark.parametrize(
    ("changes", "past"),
    [
        ({"level": 5}, "patch level 5 (nsa-indexer): "),
        ({"level": None, "passed": "constant", "how": "f returns what it returned"},
         "no patch level; a remedy: read the value before the trace, since f returns what it returned"),
        ({"level": None, "passed": "opaque", "how": "f is a single node"},
         "no patch level; a remedy: an operator of its own, since f is a single node"),
        ({"level": None, "passed": "not passed", "how": "f did not return"},
         "no patch level, and no remedy was found: f did not return"),
    ],
)  # fmt: skip
def test_what_gets_past_a_stop_is_said_in_words(changes, past):
    (found,) = stopped(stop(**changes)).blockers
    assert found.past.startswith(past) and found.past_level == changes["level"]


def test_a_stop_in_sglang_alone_is_blamed_on_sglang_and_one_in_neither_on_nothing():
    assert stopped(stop(error={"stack": STACK[:1]})).reason.endswith(
        "in sglang.srt.layers.linear:forward:451"
    )
    found = stopped(stop(error={"stack": STACK[2:]}))
    assert found.blockers[0].blamed is None and "None" not in found.reason


def test_a_stop_without_an_operation_is_told_in_its_own_words_even_where_it_has_none():
    assert stopped(stop(error={"message": "Odd.\nMore."})).reason.startswith("Odd. in flashinfer")
    silent = stopped(stop(error={"message": ""}))
    assert silent.outcome is Foretold.STOPS and "Unsupported in flashinfer" in silent.reason


def test_a_stop_at_a_stand_in_tells_nothing():
    words = "NotImplementedError: deep_gemm.f needs a GPU; this is a stand-in"
    found = stopped(stop(error={"message": words}, rests_on_stand_in=True, passed="not passed", level=None))
    assert found.outcome is Foretold.CANNOT_TELL
    assert found.reason == f"the trace rests on a stand-in: {words}"


def test_a_stop_at_a_stand_in_behind_another_leaves_the_first_to_stand():
    behind = stop(rests_on_stand_in=True, passed="not passed", level=None)
    assert stopped(stop(), behind).outcome is Foretold.STOPS


def test_an_error_of_sglangs_own_is_not_a_stop():
    error = {
        "type": "builtins.ValueError",
        "message": "not divisible by 128\nat all",
        "gb_type": None,
        "stack": [],
    }
    found = judge(TOLD, answer(error=error, compiled=False, stage="load", graphs=[]), [])
    assert found.outcome is Foretold.CANNOT_TELL and found.blockers == ()
    assert found.reason == "SGLang fails (load): ValueError: not divisible by 128"


def test_what_switches_it_off_is_named_and_silence_is_told_as_silence():
    rules = ["self.enable_lora (server_args.py:900)", "Disable piecewise CUDA graph because of X"]
    found = judge(TOLD, answer(compiled=False, graphs=[], switches=rules), [])
    assert found.outcome is Foretold.SWITCHED_OFF and found.reason == "; ".join(rules)
    assert found.memory is None and found.switches == tuple(rules)
    found = judge(TOLD, answer(compiled=False, graphs=[]), [])
    assert found.reason == "SGLang made no piecewise runner, and does not say why"


def test_a_runner_that_compiled_nothing_is_no_pass():
    found = judge(TOLD, answer(graphs=[]), [])
    assert found.outcome is Foretold.CANNOT_TELL and found.memory is None
    assert "compiled no graph" in found.reason


def test_a_forecast_that_was_not_made_says_why():
    found = not_told(SEED, CASE, "no sources", arch="sm120", patch_level=4)
    assert (found.outcome, found.reason) == (Foretold.CANNOT_TELL, "no sources")
    assert (found.tp, found.patch_level, found.declared) == (8, 4, None)


def nothing_is_asked(*_args, **_kwargs):
    raise AssertionError("the probe was asked")


@pytest.fixture
def no_probe(monkeypatch):
    monkeypatch.setattr(asking, "run_probe", nothing_is_asked)


@pytest.mark.usefixtures("no_probe")
def test_a_release_without_compile_is_answered_without_a_probe(node):
    found = foresee(node, catalog.load(Stack, "current"), CASE)
    assert found.outcome is Foretold.SWITCHED_OFF and "removed in 0.5.22" in found.reason
    assert (found.architecture, found.layers, found.model_layers) == ("GlmMoeDsaForCausalLM", 78, 78)
    assert found.declared is None and found.seconds == {} and found.versions == {"sglang": "0.5.23"}
    few = foresee(node, catalog.load(Stack, "current"), CASE, quick=True)
    assert (few.layers, few.model_layers) == (4, 78)


@pytest.mark.usefixtures("no_probe")
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rank": 8}, "No rank 8 of 8; allowed: 0 to 7."),
        ({"rank": -1}, "No rank -1 of 8; allowed: 0 to 7."),
        ({"rank": 2, "tp": 2}, "No rank 2 of 2; allowed: 0 to 1."),
        ({"arch": "sm12"}, "No architecture 'sm12'; known: sm90, sm100, sm103, sm110, sm120, sm121."),
        ({"patch_level": 6}, "No patch level 6; allowed: 0 to 5."),
        ({"stack": SEED.model_copy(update={"sglang": "0.5.10"})},
         "SGLang 0.5.10's piecewise runner is not known; known: 0.5.9, 0.5.12."),
        ({"profile": CASE.model_copy(update={"model": "GLM-5-NVFP44"})},
         "Model 'GLM-5-NVFP44' of profile glm5-nvfp4-tp8 is no folder here, and data/models has no such checkpoint; "
         "did you mean GLM-5-NVFP4?"),
        ({"profile": CASE.model_copy(update={"model": "xyzzy"})},
         "Model 'xyzzy' of profile glm5-nvfp4-tp8 is no folder here, and data/models has no such checkpoint; "
         "put its config.json in a folder and name that."),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_sentence(node, changes, sentence):
    asked = {"stack": SEED, "profile": CASE} | changes
    with pytest.raises(UsageError) as caught:
        foresee(node, asked.pop("stack"), asked.pop("profile"), **asked)
    assert str(caught.value) == sentence


@pytest.mark.usefixtures("no_probe")
def test_missing_sources_are_answered_with_the_command_that_brings_them(tmp_path, monkeypatch):
    from workbook.node.connect import connect

    monkeypatch.setenv("WORKBOOK_STACKS", str(tmp_path))
    node = connect("local")
    for folder, name in (
        ("sglang-0.5.9", "SGLang 0.5.9's sources are"),
        ("flashinfer-python-0.6.3", "FlashInfer 0.6.3 is"),
    ):
        with pytest.raises(UsageError) as caught:
            foresee(node, SEED, CASE)
        assert str(caught.value) == (
            f"{name} not on node local (looked in {tmp_path / folder}). Run: workbook stack create seed --sources"
        )
        (tmp_path / folder).mkdir()
    with pytest.raises(
        AssertionError, match="the probe was asked"
    ):  # so both refusals were of what was missing
        foresee(node, SEED, CASE)


def test_a_profile_is_found_by_name_by_model_or_by_folder(tmp_path):
    assert profile_for("glm5-nvfp4-tp8") == CASE
    assert profile_for("GLM-5-NVFP4").quantization == "modelopt_fp4"
    assert profile_for("nvidia/Qwen3-30B-A3B-NVFP4").quantization == "modelopt_fp4"
    assert profile_for("Qwen3-30B-A3B-FP8").quantization is None  # config.json says it
    (tmp_path / "config.json").write_text("{}")
    assert profile_for(str(tmp_path)).model == str(tmp_path)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("glm5-nvfp4-tp9", "did you mean glm5-nvfp4-tp8?"),
        ("Qwen3-30B-A3", "did you mean Qwen3-30B-A3B?"),
        ("/nowhere/at/all", "`ls data/profiles data/models` shows what there is."),
    ],
)
def test_an_unknown_profile_is_answered_with_the_nearest(name, hint):
    with pytest.raises(UsageError) as caught:
        profile_for(name)
    sentence = f"{name!r} is no launch profile, no model of data/models and no folder with a config.json;"
    assert str(caught.value) == f"{sentence} {hint}"


def read(node, folder):
    return model_files(node, CASE.model_copy(update={"model": str(folder)}))


def test_a_folder_without_a_config_is_refused(node, tmp_path):
    with pytest.raises(UsageError) as caught:
        read(node, tmp_path)
    assert str(caught.value) == f"{tmp_path} has no config.json."


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", " is no JSON: Expecting property name"),
        (b"\xff\xfe", " is no JSON: 'utf-8' codec can't decode"),
        (b"[" * 100_000, " is no JSON: maximum recursion depth"),
        (b"[]", " is no JSON object."),
        (b'{"architectures": 3}', ": architectures: 3 will not do; "),
        (b'{"architectures": [["x"]]}', ": architectures.0: ['x'] will not do; "),
        (b'{"num_hidden_layers": "4"}', ": num_hidden_layers: '4' will not do; "),
        (b'{"num_hidden_layers": true}', ": num_hidden_layers: True will not do; "),
        (b'{"num_hidden_layers": -4}', ": num_hidden_layers: -4 will not do; "),
        (b'{"num_hidden_layers": 1000000000000}', ": num_hidden_layers: 1000000000000 will not do; "),
        (b'{"layer_types": [[]]}', ": layer_types.0: [] will not do; "),
        (b'{"first_k_dense_replace": "x"}', ": first_k_dense_replace: 'x' will not do; "),
    ],
)
def test_a_config_that_will_not_do_is_refused_in_one_sentence(node, tmp_path, content, sentence):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read(node, tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'config.json'}{sentence}")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize("said", [{}, {"quantization": "x"}, {"quantization": {"quant_algo": ["NVFP4"]}}])
def test_a_quantization_that_says_nothing_is_none(tmp_path, said):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(said))
    assert profile_for(str(tmp_path)).quantization is None


def cut(**config):
    return json.loads(few_layers({"config.json": json.dumps(config)})["config.json"])


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({}, 2),
        ({"first_k_dense_replace": 3}, 4),
        ({"first_k_dense_replace": 3, "moe_layer_freq": 2}, 5),
        ({"first_k_dense_replace": None, "moe_layer_freq": 1}, 2),
        ({"decoder_sparse_step": 4}, 4),
        ({"decoder_sparse_step": 1, "mlp_only_layers": [0, 1, 2]}, 4),
        ({"decoder_sparse_step": 0}, 2),
        ({"layer_types": ["a"] * 5 + ["b"] * 15}, 6),
        ({"layer_types": []}, 2),
    ],
)
def test_a_few_layers_have_one_of_each_kind(config, layers):
    assert cut(num_hidden_layers=20, **config)["num_hidden_layers"] == layers


def test_a_model_of_which_nothing_can_be_left_out_stays():
    for config in (
        {"num_hidden_layers": 2},
        {"num_hidden_layers": 1},
        {"num_hidden_layers": 3, "layer_types": ["a", "a", "b"]},
        {"hidden_size": 8},
    ):
        assert cut(**config) == config
    assert layers_of({"config.json": "{}"}) == 0
    assert architecture_of({"config.json": "{}"}) == "unknown"


@given(
    layers=st.integers(1, 60),
    kinds=st.data(),
    dense=st.integers(0, 60),
    other=st.lists(st.integers(), max_size=60),
)
def test_lists_with_an_entry_per_layer_are_cut_alike_and_all_else_stays(layers, kinds, dense, other):
    types = kinds.draw(st.lists(st.sampled_from("abc"), min_size=layers, max_size=layers))
    config = {
        "num_hidden_layers": layers,
        "layer_types": types,
        "indexer_types": types[::-1],
        "other": other,
        "first_k_dense_replace": dense,
    }
    found = cut(**config)
    left = found["num_hidden_layers"]
    assert min(layers, 2) <= left <= layers
    assert found["layer_types"] == types[:left] and set(found["layer_types"]) == set(types)
    assert found["indexer_types"] == types[::-1][:left]
    assert found["other"] == (other[:left] if len(other) == layers else other)
    assert found["first_k_dense_replace"] == dense and (left > dense or dense >= layers)
    assert cut(**found) == found


@pytest.mark.parametrize("checkpoint", ["GLM-5-NVFP4", "Qwen3-30B-A3B-NVFP4", "gpt-oss-20b"])
def test_a_public_model_is_cut_to_a_few_of_its_layers(checkpoint):
    files = model_configs.files(checkpoint)
    few = few_layers(files)
    assert 2 <= layers_of(few) <= 4 < layers_of(files)
    assert few.keys() == files.keys()
    assert [few[name] == files[name] for name in sorted(files) if name != "config.json"] == [True] * (
        len(files) - 1
    )


def test_a_server_without_weights_is_asked_for_none():
    argv = ["--model-path", "M", "--load-format", "auto", "--tp-size", "8"]
    end = ["--load-format", "dummy", "--skip-tokenizer-init"]
    assert without_weights(argv) == ["--model-path", "M", "--tp-size", "8", *end]
    assert without_weights(argv[:2]) == ["--model-path", "M", *end]
    assert argv[2] == "--load-format"  # as it was


def test_hostile_words_of_the_probe_stay_words(tmp_path: Path):
    error = {"type": "x.\x1b[31mE", "message": "\x1b]0;gone\x07\r\n", "gb_type": None, "stack": []}
    found = judge(TOLD, answer(error=error, compiled=False, graphs=[], stage="load"), [])
    assert found.outcome is Foretold.CANNOT_TELL and "\n" not in found.reason
