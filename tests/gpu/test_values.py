"""Level 4's values and cost on a real GPU."""

import shutil

import pytest

from workbook.boundary.values import compare_values
from workbook.types import Status

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no GPU on this machine"),
]


def test_a_normalization_is_equal_and_a_kernel_without_a_body_is_found_out(node, embedded):
    norm, quantizer = compare_values(node, embedded, ["flashinfer.rmsnorm", "flashinfer.fp4_quantize"])
    assert norm.status is Status.OK and norm.equal and norm.unwritten == (0.0,)
    assert norm.eager_overhead_us_p50 is not None and norm.eager_overhead_us_p50 < 5
    assert quantizer.compute_capability is not None
    has_fp4 = quantizer.compute_capability[0] >= 10
    assert quantizer.status is (Status.OK if has_fp4 else Status.WRONG_OUTPUT)
