"""Level 5: sparse attention's indexer is an operator at which SGLang splits, as it does at attention; so is attention.

The indexer asks how long the batch is, in Python, and branches on it; its kernels read plans of the batch at hand. So
it can neither be traced nor captured: it has to run between graphs. What it selects goes on to attention, whose own
operator (`unified_attention_with_output`, SGLang 0.5.9 and 0.5.12) has no argument for it.
"""

import functools
import inspect

import torch

from workbook_overlay.boundary import HANDLE, PLANNED, number

NAME = "nsa-indexer"
SPLIT_AT = ("workbook.nsa_indexer", "workbook.nsa_attention")

_LIBRARY = torch.library.Library("workbook", "FRAGMENT")  # an operator lives as long as its library
_SCHEMAS = {
    "nsa_indexer": "(Tensor x, Tensor q_lora, Tensor positions, Tensor(a!) selected, int handle, int layer_id, "
    "bool return_indices) -> ()",
    "nsa_attention": "(Tensor query, Tensor? key, Tensor? value, Tensor(a!) output, Tensor selected, "
    "bool save_kv_cache, int layer_id, Tensor? q_rope, Tensor? k_rope) -> ()",
}


def replace(module, originals):
    made = {"Indexer.forward_cuda": indexer, "RadixAttention.forward": attention}
    split_at_operators()
    replacements = {name: made[name](original) for name, original in originals.items()}
    if "Indexer.forward_cuda" in originals:
        number_when_made(module.Indexer)
    return replacements


def split_at_operators() -> None:
    """Have SGLang split graphs at the two operators."""
    from sglang.srt.compilation.compilation_config import SPLIT_OPS

    SPLIT_OPS.extend(one for one in SPLIT_AT if one not in SPLIT_OPS)


def number_when_made(owner) -> None:
    """Indexers get the number by which the operator finds them."""
    make = owner.__init__

    @functools.wraps(make)
    def make_and_number(self, *args, **kwargs):
        make(self, *args, **kwargs)
        number(self)

    owner.__init__ = make_and_number


def define(name: str, body) -> object:
    """An operator that writes into an argument and returns nothing, so that its fake has nothing to say."""
    _LIBRARY.define(name + _SCHEMAS[name])
    _LIBRARY.impl(name, body, "CUDA")
    torch.library.register_fake(f"workbook::{name}", lambda *args: None, lib=_LIBRARY)
    return getattr(torch.ops.workbook, name)  # not an overload of it: SGLang splits by this name


def batch_and_layer(layer_id: int):
    """The forward batch at hand, its number of tokens without padding, and the attention layer."""
    context = forward_context()
    batch = context.forward_batch
    return batch, batch.extend_num_tokens, context.attention_layers[layer_id]


def forward_context():
    """What SGLang's piecewise runner has set for this forward; None outside of one."""
    from sglang.srt.compilation.piecewise_context_manager import get_forward_context

    return get_forward_context()


class Unpadded:
    """Within the block the batch's cache locations are those of its own tokens, without padding."""

    def __init__(self, batch, tokens: int) -> None:
        self._batch, self._tokens = batch, tokens

    def __enter__(self) -> None:
        self._padded = self._batch.out_cache_loc
        self._batch.out_cache_loc = self._padded[: self._tokens]

    def __exit__(self, *_args) -> None:
        self._batch.out_cache_loc = self._padded


def indexer(original):
    """What takes the place of `Indexer.forward_cuda`."""

    def body(x, q_lora, positions, selected, handle, layer_id, return_indices):
        batch, tokens, _layer = batch_and_layer(layer_id)
        with Unpadded(batch, tokens):
            found = original(
                PLANNED[handle],
                x[:tokens],
                q_lora[:tokens],
                positions[:tokens],
                batch,
                layer_id,
                return_indices,
            )
        selected.fill_(-1)  # which stands for no token
        if found is not None:
            selected[: found.shape[0]].copy_(found)

    operator = define("nsa_indexer", body)

    def forward_cuda(self, x, q_lora, positions, forward_batch, layer_id, return_indices=True):
        if forward_context() is None or not forward_batch.forward_mode.is_extend():
            return original(self, x, q_lora, positions, forward_batch, layer_id, return_indices)
        selected = x.new_empty((x.shape[0], self.index_topk), dtype=torch.int32)
        operator(x, q_lora, positions, selected, getattr(self, HANDLE), layer_id, return_indices)
        return selected if return_indices else None

    return forward_cuda


def attention(original):
    """What takes the place of `RadixAttention.forward`."""

    def body(query, key, value, output, selected, save_kv_cache, layer_id, q_rope, k_rope):
        batch, tokens, layer = batch_and_layer(layer_id)
        given = {"q_rope": q_rope, "k_rope": k_rope, "topk_indices": selected}
        with Unpadded(batch, tokens):
            answer = batch.attn_backend.forward(
                *(one if one is None else one[:tokens] for one in (query, key, value)),
                layer,
                batch,
                save_kv_cache,
                **{name: one[:tokens] for name, one in given.items() if one is not None},
            )
        output[:tokens].view(answer.shape).copy_(answer)

    operator = define("nsa_attention", body)

    def forward(self, q, k, v, forward_batch, save_kv_cache=True, **kwargs):
        selected = kwargs.get("topk_indices")
        if selected is None or forward_context() is None or not forward_batch.forward_mode.is_extend():
            return original(self, q, k, v, forward_batch, save_kv_cache, **kwargs)
        output = q.new_empty((q.shape[0], self.tp_q_head_num * self.v_head_dim))
        operator(
            q,
            k,
            v,
            output,
            selected,
            save_kv_cache,
            self.layer_id,
            kwargs.get("q_rope"),
            kwargs.get("k_rope"),
        )
        return output

    return forward


def patched_source(name, source):
    """The installed function stays, as the operator's body; what calls the operator takes its name."""
    function = name.rpartition(".")[2]
    made = {"forward_cuda": indexer, "forward": attention}[function]
    kept = source.replace(f"def {function}(", "def original(", 1)
    return f"{kept}\n\n{inspect.getsource(made)}\n{name} = {made.__name__}(original)\n"
