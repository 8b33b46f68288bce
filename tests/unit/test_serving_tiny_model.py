"""The tiny random model: the same bytes every time, written once."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from workbook.errors import UsageError, WorkbookError
from workbook.node.local import LocalConnection
from workbook.paths import OVERLAY
from workbook.serving.tiny_model import resolve_model, tiny_model
from workbook.types import LaunchProfile, Node

needs_tokenizers = pytest.mark.skipif(find_spec("tokenizers") is None, reason="no tokenizers library here")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalConnection:
    monkeypatch.setenv("WORKBOOK_STACKS", str(tmp_path / "stacks"))
    return LocalConnection(Node(name="here"))


def profile(model: str) -> LaunchProfile:
    return LaunchProfile(
        name="test", description="", model=model, concurrencies=(1,), input_tokens=8, output_tokens=8
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@needs_tokenizers
def test_it_is_the_same_every_time_and_written_once(
    node: LocalConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tiny_model(node)
    assert set(contents(first)) == {
        "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    (first / "config.json").touch()
    stamp = (first / "config.json").stat().st_mtime_ns
    assert tiny_model(node) == first and (first / "config.json").stat().st_mtime_ns == stamp
    assert [path.name for path in first.parent.iterdir()] == [first.name]  # nothing half-written beside it
    monkeypatch.setenv("WORKBOOK_STACKS", str(tmp_path / "elsewhere"))
    second = tiny_model(node)
    assert second != first and contents(second) == contents(first)


@needs_tokenizers
def test_every_token_can_be_sampled_and_text_comes_back(node: LocalConnection) -> None:
    folder = tiny_model(node, vocab=600)
    read = (
        "import json, sys; from tokenizers import Tokenizer; t = Tokenizer.from_file(sys.argv[1]);"
        "print(json.dumps([t.get_vocab_size(), [t.decode([i]) for i in range(t.get_vocab_size())],"
        " t.decode(t.encode(sys.argv[2]).ids)]))"
    )
    odd = "naïve 测试 \t{}"
    done = node.run([sys.executable, "-c", read, str(folder / "tokenizer.json"), odd], timeout_s=60)
    size, decoded, text = json.loads(done.stdout)
    config = json.loads((folder / "config.json").read_text())
    assert size == config["vocab_size"] == len(decoded) == 600
    assert text == odd


@needs_tokenizers
def test_sizes_are_the_profiles_and_name_the_folder(node: LocalConnection) -> None:
    folder = Path(resolve_model(node, profile("tiny:hidden=64,layers=3")))
    config = json.loads((folder / "config.json").read_text())
    assert (config["hidden_size"], config["num_hidden_layers"], config["head_dim"]) == (64, 3, 32)
    assert Path(resolve_model(node, profile("tiny"))) != folder


def test_another_model_is_left_as_it_is(node: LocalConnection) -> None:
    assert resolve_model(node, profile("org/tiny")) == "org/tiny"
    assert resolve_model(node, profile("/models/tiny")) == "/models/tiny"


@pytest.mark.parametrize("model", ["tiny:depth=3", "tiny:layers=", "tiny:layers=two", "tiny:layers=2;ls"])
def test_misspelt_sizes_are_refused(node: LocalConnection, model: str) -> None:
    with pytest.raises(UsageError, match=r"tiny:hidden=128"):
        resolve_model(node, profile(model))


@pytest.mark.parametrize("sizes", [{"hidden": 100, "heads": 3}, {"vocab": 100}, {"layers": 0}])
def test_sizes_that_do_not_fit_are_refused_in_a_sentence(
    node: LocalConnection, sizes: dict[str, int]
) -> None:
    with pytest.raises(UsageError, match=r"no such tiny model: (every size|--vocab) ") as caught:
        tiny_model(node, **sizes)
    assert "Traceback" not in str(caught.value)


def test_a_node_without_tokenizers_is_named(tmp_path: Path, node: LocalConnection) -> None:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    script.chmod(0o755)
    bare = LocalConnection(Node(name="bare", python=str(script)))
    with pytest.raises(WorkbookError, match=r"node bare .*No module named 'tokenizers'"):
        tiny_model(bare)
    assert list((tmp_path / "stacks" / "models").iterdir()) == []


needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="no torch here")


@needs_tokenizers
@needs_torch
def test_with_a_seed_it_has_weights_and_another_seed_has_others(
    node: LocalConnection, tmp_path: Path
) -> None:
    one, other = (Path(resolve_model(node, profile(f"tiny:seed={seed}"))) for seed in (0, 1))
    assert one != other and (one / "config.json").read_bytes() == (other / "config.json").read_bytes()
    assert (one / "model.safetensors").read_bytes() != (other / "model.safetensors").read_bytes()
    count = "import sys; from safetensors import safe_open; print(len(safe_open(sys.argv[1], 'pt').keys()))"
    done = node.run([sys.executable, "-c", count, str(one / "model.safetensors")], timeout_s=120)
    assert done.stdout.strip() == str(3 + 2 * 9)  # embedding, norm, head; nine a layer


@needs_tokenizers
@needs_torch
def test_the_same_seed_gives_the_same_weights(
    node: LocalConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tiny_model(node, seed=3)
    monkeypatch.setenv("WORKBOOK_STACKS", str(tmp_path / "elsewhere"))
    assert contents(tiny_model(node, seed=3)) == contents(first)


@needs_tokenizers
def test_with_experts_it_is_a_mixture_of_its_own(node: LocalConnection) -> None:
    folder = Path(resolve_model(node, profile("tiny:experts=8")))
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["Qwen3MoeForCausalLM"] and config["num_experts"] == 8
    assert config["num_experts_per_tok"] * config["moe_intermediate_size"] == config["intermediate_size"]
    assert folder != tiny_model(node)
    with pytest.raises(UsageError, match="--experts is at least 4"):
        tiny_model(node, experts=3)


HUGGING_FACE = """
import sys
from workbook_overlay import cpu_sglang
cpu_sglang.complete_torchvision()
import torch
from transformers import AutoModelForCausalLM
model, told = AutoModelForCausalLM.from_pretrained(sys.argv[1], output_loading_info=True)
assert not any(told.values()), told
first, other = (model(torch.tensor([[start, 9, 77]])).logits[0, -1] for start in (5, 400))
print("context matters" if (first - other).abs().max() > 1 else "context is ignored")
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None, reason="no transformers library here")
@pytest.mark.parametrize("model", ["tiny:seed=1", "tiny:experts=8,seed=1"])
def test_the_weights_are_those_that_the_config_asks_for(node: LocalConnection, model: str) -> None:
    folder = resolve_model(node, profile(model))
    env = {"PYTHONPATH": str(OVERLAY)}
    done = node.run([sys.executable, "-c", HUGGING_FACE, folder], timeout_s=300, env=env)
    assert done.stdout.strip() == "context matters", done.stderr[-2000:]
