"""A parameter that will not do is named in one sentence, before anything starts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbook import campaign
from workbook.errors import ParameterError
from workbook.params import BaselineParams, PatchesParams, PiecewiseParams

BASE = {
    "campaign": "c", "node": "local", "label": "l", "profile": "tiny-cpu", "capture_mode": "eager", "repeats": 1,
    "budget_s": 0, "seed": 1,
}  # fmt: skip
GOOD = {
    "campaign": "c", "node": "local", "label": "l", "stack": "embedded", "profile": "tiny-cpu", "arch": "sm120",
    "patch_level": 2, "tp": 1, "capture_mode": "piecewise", "baseline_mode": "eager", "concurrencies": "",
    "repeats": 3, "budget_s": 0, "seed": 1, "prompts": 8,
    "foresee_profile": "", "foresee_stack": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"patch_lvl": 2}, "patch_lvl is not a parameter of 03_piecewise; did you mean patch_level?"),
        ({"patch_level": "two"}, "patch_level = 'two' will not do: an integer from 0 to 5 is allowed."),
        ({"label": "x" * 3000}, "label = 'xxxxxxxxxxxx...xxxxxxxxxxxxx' will not do: up to 64 letters"),
        ({"patch_level": 9}, "patch_level = 9 will not do: an integer from 0 to 5 is allowed."),
        ({"patch_level": 2.0}, "patch_level = 2.0 will not do: an integer from 0 to 5 is allowed."),
        ({"patch_level": True}, "patch_level = True will not do: an integer from 0 to 5 is allowed."),
        ({"tp": -1}, "tp = -1 will not do: an integer from 0 to 1024 is allowed."),
        ({"budget_s": -5}, "budget_s = -5 will not do: an integer from 0 to 604800 is allowed."),
        (
            {"node": "locl"},
            "node = 'locl' will not do: No node named 'locl' in data/nodes; did you mean local?",
        ),
        (
            {"foresee_stack": "sed"},
            "foresee_stack = 'sed' will not do: No stack named 'sed' in data/stacks; did you mean seed?",
        ),
        ({"arch": "sm99"}, "arch = 'sm99' will not do: No architecture 'sm99'; known: sm90, "),
        ({"capture_mode": "piece"}, "capture_mode = 'piece' will not do: "),
        ({"campaign": "../../etc"}, "campaign = '../../etc' will not do: up to 64 letters"),
        ({"zzz": 1}, "zzz is not a parameter of 03_piecewise; its parameters are campaign, node, label, "),
    ],
)
def test_one_sentence(changes, sentence):
    with pytest.raises(ParameterError) as caught:
        PiecewiseParams.check(GOOD | changes)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_a_missing_parameter_is_named():
    with pytest.raises(ParameterError, match="tp is missing from the parameters of 03_piecewise"):
        PiecewiseParams.check({name: value for name, value in GOOD.items() if name != "tp"})


CELL = "# Parameters: edit here\n" + "\n".join(f"{name} = {value!r}" for name, value in GOOD.items())


def namespace(*cells):
    """What a kernel's globals are after these cells."""
    found = {}
    for cell in cells:
        exec(cell, found)
    return found | {"In": ["", *cells, "PiecewiseParams.bind(globals())"], "unrelated": 1}


def test_bind_reads_the_parameters_cell_and_what_papermill_injects():
    assert PiecewiseParams.bind(namespace(CELL)).patch_level == 2
    assert PiecewiseParams.bind(namespace(CELL, "# Parameters\npatch_level = 3\n")).patch_level == 3


def test_bind_names_what_papermill_injected_in_vain():
    with pytest.raises(ParameterError, match="did you mean patch_level"):
        PiecewiseParams.bind(namespace(CELL, "# Parameters\npatch_lvl = 3\n"))


def test_a_mended_parameters_cell_is_forgiven():
    wrong = CELL.replace("patch_level", "patch_lvl")
    names = namespace(wrong, "PiecewiseParams = None", CELL)
    assert PiecewiseParams.bind(names).patch_level == 2


@pytest.mark.parametrize(
    ("given_as", "read"),
    [("1,4,16", [1, 4, 16]), (8, [8]), ([1, 2], [1, 2]), ("", []), (" 3 , 5", [3, 5]), ("4,4,1", [4, 1])],
)
def test_concurrencies_as_papermill_hands_them_over(given_as, read):
    assert BaselineParams.check(BASE | {"concurrencies": given_as}).concurrencies == read


@pytest.mark.parametrize("wrong", ["1,x", "0", "-1", "²", "9" * 5000, True, 1.5])
def test_concurrencies_that_will_not_do(wrong):
    with pytest.raises(
        ParameterError, match=r"^concurrencies = .{1,60} will not do: integers from 1 to 65536"
    ):
        BaselineParams.check(BASE | {"concurrencies": wrong})


@pytest.mark.parametrize("model", campaign.ORDER, ids=lambda model: model.notebook)
def test_the_notebooks_own_values_pass(model):
    model.check(campaign.defaults(model))


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())


@given(st.dictionaries(st.sampled_from([*GOOD, "levels", "other"]), SCALARS))
def test_nothing_but_a_sentence_comes_out(changes):
    for model in (PiecewiseParams, PatchesParams):
        try:
            model.check(GOOD | changes)
        except ParameterError as error:
            assert str(error)
