"""The table of remedies, the records made of a probe's answers, and what is shown of them."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.report_samples import trace
from workbook.boundary.remedies import observation, outcome, with_costs
from workbook.boundary.remedy_table import REMEDIES
from workbook.paths import PROBES
from workbook.report.boundary import remedies
from workbook.types import RemedyOutcome, Status

ERROR = {
    "type": "torch._dynamo.exc.Unsupported",
    "gb_type": None,
    "message": "no\n\n  Developer debug context: module: posix, qualname: stat, skip reason: x\n",
    "stack": [],
}
ANSWER = {
    "refused": "",
    "error": None,
    "output_shapes": ["uint8 (128, 128)"],
    "seconds": 0.5,
    "observed": [{"what": "again the trace", "traced": True, "error": ERROR}],
    "versions": {"torch": "2.13.0"},
    "stand_ins": ["kernel module x: did nothing"],
    "declared": trace().declared.model_dump(),
}
MEASURED = {
    "bare_us_p50": 20.0,
    "calls": 6000,
    "overheads": {
        "is-compiling": {"overhead_us_p10": 0.25, "overhead_us_p50": 0.5, "overhead_us_p90": 1234.5}
    },
}


def test_the_table_and_the_probe_have_the_same_remedies_in_the_same_order():
    body = ast.parse((PROBES / "remedies.py").read_text()).body
    (table,) = [one.value for one in body if isinstance(one, ast.Assign) and one.targets[0].id == "REMEDIES"]
    assert [key.value for key in table.keys] == [one.name for one in REMEDIES]


def test_a_pass_becomes_a_record_with_what_was_observed():
    found = outcome("is-compiling", "sm120", ANSWER)
    assert (found.status, found.blamed, found.output_shapes) == (Status.OK, None, ("uint8 (128, 128)",))
    assert found.observed == ("again the trace stops at posix.stat",)
    assert found.declared == trace().declared


def test_a_stop_is_told_with_its_operation():
    found = outcome("pre-warm", "sm120", ANSWER | {"error": ERROR, "output_shapes": []})
    assert (found.status, found.operation) == (Status.DYNAMO_UNSUPPORTED, "posix.stat")


def test_a_remedy_that_cannot_be_applied_is_not_supported_here_and_says_why():
    refused = {key: ANSWER[key] for key in ("versions", "stand_ins", "declared")}
    found = outcome(
        "custom-op-define", "sm120", refused | {"refused": "ValueError: a config", "observed": []}
    )
    assert (found.status, found.message) == (Status.NOT_SUPPORTED_HERE, "ValueError: a config")
    assert "ValueError: a config" in remedies([found])._repr_html_()


def test_only_what_passes_has_a_cost():
    passed = outcome("is-compiling", "sm120", ANSWER)
    stopped = outcome("pre-warm", "sm120", ANSWER | {"error": ERROR})
    one, other = with_costs([passed, stopped], MEASURED)
    assert (one.overhead_us_p50, one.bare_us_p50, one.cost_calls) == (0.5, 20.0, 6000)
    assert other.overhead_us_p50 is None and other.cost_note == "not measured: it does not pass"


def test_a_measurement_that_failed_leaves_the_trace_and_says_why():
    (found,) = with_costs([outcome("is-compiling", "sm120", ANSWER)], {"failed": "ValueError: no"})
    assert (found.status, found.overhead_us_p50) == (Status.OK, None)
    assert found.cost_note == "not measured: ValueError: no"


def test_the_table_shows_cost_and_range_and_says_that_it_is_a_cpu():
    found = with_costs(
        [outcome("is-compiling", "sm120", ANSWER), outcome("pre-warm", "sm120", ANSWER | {"error": ERROR})],
        MEASURED,
    )
    table = remedies(found)
    costs = [row[3] for row in table.rows]
    assert [cell.text for cell in costs] == ["0.5 (0.2 to 1234.5)", "–"]
    assert "20.0 µs" in table.caption and "CPU tensors" in table.caption and "GPU" in table.caption
    assert [getattr(row[2], "text", "") for row in table.rows] == ["–", "posix.stat"]
    assert "Seen: again the trace stops at posix.stat." in str(table.rows[0][5])


def test_without_a_measurement_the_table_says_so():
    assert (
        "no call was timed"
        in remedies(with_costs([outcome("is-compiling", "sm120", ANSWER)], {"failed": "x"})).caption
    )


@pytest.mark.parametrize("name", ["is-compiling", "of another version"])
@given(observed=st.lists(st.text(), max_size=3), message=st.text(), cost=st.none() | st.floats(-1e6, 1e6))
def test_any_record_is_stored_and_shown(name, observed, message, cost):
    costs = dict.fromkeys(("overhead_us_p10", "overhead_us_p50", "overhead_us_p90", "bare_us_p50"), cost)
    made = outcome(name, "sm120", ANSWER).model_dump() | costs
    found = RemedyOutcome.model_validate(made | {"observed": observed, "message": message})
    assert RemedyOutcome.model_validate_json(found.model_dump_json()) == found
    markup = remedies([found])._repr_html_()
    assert name in markup and "<script" not in markup


@given(st.text())
def test_an_observation_is_one_line_whatever_dynamo_says(message):
    told = observation({"what": "the trace", "traced": True, "error": ERROR | {"message": message}})
    assert told.startswith("the trace stops at ") and "\n" not in told
