"""What upstream cures, read from sources of the same form as FlashInfer's; the code here was written for the test."""

import ast
import subprocess
import sys

import pytest

from workbook.paths import OVERLAY

sys.path.insert(0, str(OVERLAY))
from workbook_overlay import upstream

PARAMETERS = ["input", "global_scale", "is_global_scale_inversed", "enable_pdl"]


def wrapper(call, name="flashinfer::fp4_quantize"):
    decorator = f"@torch.library.custom_op({name!r}, mutates_args=())"
    definition = f"def op(input, global_scale, enable_pdl):\n    return {call}\n"
    return upstream.operator_wrapper(ast.parse(f"{decorator}\n{definition}"))


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        ("fp4_quantize(input, global_scale, enable_pdl)", [("enable_pdl", "is_global_scale_inversed")]),
        ("fp4_quantize(input, global_scale, enable_pdl=enable_pdl)", []),
        ("fp4_quantize(input, global_scale, False, enable_pdl)", []),
    ],
)
def test_an_argument_that_lands_in_another_ones_place_is_found(call, wrong):
    assert upstream.misplaced(wrapper(call), PARAMETERS) == wrong


def test_another_operator_is_no_cure():
    assert wrapper("fp4_quantize(input)", name="flashinfer::other") is None


def test_verify_says_known_and_what_sglang_does_itself(embedded):
    from tests.conftest import BIN

    done = subprocess.run(
        [BIN / "workbook", "patch", "verify", "4"], capture_output=True, text=True, check=True
    )
    assert "flashinfer.fp4_quantization.fp4_quantize: as in FlashInfer 0.6.1, 0.6.3" in done.stdout
    assert "SGLang 0.5.23 calls the quantizer through an operator of its own" in done.stdout


def test_level_5_says_in_one_sentence_that_this_sglang_is_not_what_it_patches(embedded):
    from tests.conftest import BIN

    done = subprocess.run(
        [BIN / "workbook", "patch", "verify", "5"], capture_output=True, text=True, check=False
    )
    assert (
        done.returncode == 2 and "custom-op: flashinfer.fp4_quantization.fp4_quantize: as in" in done.stdout
    )
    assert done.stderr.startswith(
        "workbook: patch nsa-indexer: SGLang 0.5.23 has no sglang.srt.layers.attention.nsa."
    )
    assert len(done.stderr.splitlines()) == 1
