"""Write a tiny random model: a folder without weights, for a server with `--load-format dummy`, or with them.

    python tiny_model.py OUT_DIR [--hidden 128] [--layers 2] [--heads 2] [--vocab 512] [--experts N] [--seed N]

A dense Llama; with --experts a Qwen3 mixture of experts, in which a token passes as many weights as in the dense one.

With --seed it gets random weights: SGLang's dummy ones are so small that the next token depends on the last one alone,
whatever attention does. The same arguments give the same bytes. A folder that is already there is left alone. Prints
one JSON line.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

BOS, EOS = "<s>", "</s>"
BYTES = 256
CONTEXT = 8192
CORPUS = "the quick brown fox jumps over the lazy dog {} times in a benchmark of serving systems"
ACTIVE = 4  # experts that a token passes
SHARPNESS = 3.0  # standard deviation of the logits: some tokens are likely, as with a real model
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def mixture(hidden: int, experts: int) -> dict:
    """What makes a mixture of experts of the dense model's `config.json`."""
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": experts,
        "num_experts_per_tok": ACTIVE,
        "moe_intermediate_size": 2 * hidden // ACTIVE,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
    }


def config(hidden: int, layers: int, heads: int, vocab: int, experts: int | None) -> dict:
    """What `config.json` says."""
    dense = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": hidden // heads,
        "vocab_size": vocab,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 1,
    }
    return dense | (mixture(hidden, experts) if experts else {})


def tokenizer(vocab: int):
    """A byte-level BPE tokenizer with exactly `vocab` tokens, so that every sampled id can be decoded."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread: the same merges every time
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator([CORPUS.format(number) for number in range(200)], trainer)
    made.add_tokens([f" word{number}" for number in range(vocab - made.get_vocab_size())])
    return made


def weights(seed: int, hidden: int, layers: int, heads: int, vocab: int, experts: int | None):
    """Random weights by which every layer counts: all of them keep the size of what passes through."""
    import torch

    numbers = torch.Generator().manual_seed(seed)

    def linear(rows: int, columns: int, size: float = 1.0):
        return (torch.randn(rows, columns, generator=numbers) * size / columns**0.5).bfloat16()

    ones = torch.ones(hidden, dtype=torch.bfloat16)
    made = {
        "model.embed_tokens.weight": linear(vocab, hidden, hidden**0.5),
        "model.norm.weight": ones,
        "lm_head.weight": linear(vocab, hidden, SHARPNESS),
    }

    def feed_forward(name: str, inner: int):
        parts = {f"{name}{part}_proj.weight": linear(inner, hidden) for part in ("gate", "up")}
        return parts | {f"{name}down_proj.weight": linear(hidden, inner)}

    for layer in range(layers):
        name = f"model.layers.{layer}."
        made |= {f"{name}self_attn.{part}_proj.weight": linear(hidden, hidden) for part in "qkvo"}
        if experts:
            size = torch.ones(hidden // heads, dtype=torch.bfloat16)
            made |= {f"{name}self_attn.{part}_norm.weight": size.clone() for part in "qk"}
            made[f"{name}mlp.gate.weight"] = linear(experts, hidden)
            for expert in range(experts):
                made |= feed_forward(f"{name}mlp.experts.{expert}.", 2 * hidden // ACTIVE)
        else:
            made |= feed_forward(f"{name}mlp.", 2 * hidden)
        made |= {f"{name}{part}_layernorm.weight": ones.clone() for part in ("input", "post_attention")}
    return made


def write(folder: Path, shape: dict, seed: int | None) -> None:
    """Write the folder's four files, and a fifth one with weights if there is a seed for them.

    Args:
        folder: an existing, empty folder.
        shape: hidden, layers, heads, vocab, experts (None for a dense model).
        seed: of the weights.
    """
    tokenizer(shape["vocab"]).save(str(folder / "tokenizer.json"))
    if seed is not None:
        from safetensors.torch import save_file

        random = weights(seed, **shape)
        save_file(random, folder / "model.safetensors", metadata={"format": "pt"})
    texts = {
        "config.json": config(**shape),
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BOS,
            "eos_token": EOS,
            "pad_token": EOS,
            "model_max_length": CONTEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    }
    for name, content in texts.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--vocab", type=int, default=512)
    parser.add_argument("--experts", type=int)
    parser.add_argument("--seed", type=int)
    shape = vars(parser.parse_args(argv))
    folder, seed = shape.pop("folder").absolute(), shape.pop("seed")
    if min(size for size in shape.values() if size is not None) < 1 or shape["hidden"] % (2 * shape["heads"]):
        parser.error("every size is at least 1, and --hidden is a multiple of twice --heads")
    if shape["vocab"] < BYTES + 2:
        parser.error(f"--vocab is at least {BYTES + 2}: the bytes and two special tokens")
    if shape["experts"] is not None and (shape["experts"] < ACTIVE or shape["hidden"] % ACTIVE):
        parser.error(f"--experts is at least {ACTIVE}, and --hidden then a multiple of {ACTIVE}")
    written = not folder.exists()
    if written:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            write(beside, shape, seed)
            beside.chmod(0o755)
            beside.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first, with the same bytes
                raise
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    print(json.dumps({"path": str(folder), "written": written}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
