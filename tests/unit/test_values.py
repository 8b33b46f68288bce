"""How a comparison on a GPU is judged: a poison that stayed outweighs equal values."""

import pytest

from workbook.boundary.values import compare_values, judge, outcome
from workbook.errors import UsageError
from workbook.types import Status

GOOD = {"failed": None, "unwritten": [0.0, 0.1], "fake_equal": True, "equal": True, "repeatable": True}


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({}, Status.OK, ""),
        ({"unwritten": [0.0, 1.0]}, Status.WRONG_OUTPUT, "wrote nothing to output 1"),
        ({"fake_equal": False}, Status.WRONG_OUTPUT, "fake"),
        ({"equal": False}, Status.WRONG_OUTPUT, "values differ"),
        ({"equal": False, "repeatable": False}, Status.WRONG_OUTPUT, "does not repeat itself"),
        ({"failed": "RuntimeError: Ninja build failed: ..."}, Status.JIT_FAILED, "Ninja"),
        ({"failed": "BackendSupportedError: no"}, Status.NOT_SUPPORTED_HERE, "no"),
    ],
)
def test_judge(change, status, words):
    found, message = judge(GOOD | change)
    assert found is status and words in message


def test_a_record_keeps_what_was_measured_and_nothing_else():
    found = outcome("flashinfer.rmsnorm", GOOD | {"bare_us_p50": 9.0, "else": 1, "versions": {"torch": "2"}})
    assert (found.entry, found.bare_us_p50, found.versions) == ("flashinfer.rmsnorm", 9.0, {"torch": "2"})


def test_without_a_gpu_it_says_so_and_an_unknown_entry_is_refused_before_anything_runs(node, embedded):
    with pytest.raises(UsageError, match=r"did you mean flashinfer\.rmsnorm"):
        compare_values(node, embedded, ["flashinfer.rmsnor"])
    (found,) = compare_values(node, embedded, ["flashinfer.rmsnorm"])
    if found.gpu is None:
        assert (found.status, found.message) == (Status.NOT_SUPPORTED_HERE, "there is no GPU")
