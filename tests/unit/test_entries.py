"""The table of entry points: every row is valid, and every patch knows its functions in every version."""

import json
import sys

import pytest
from pydantic import ValidationError

from workbook import catalog
from workbook.boundary.entries import ARCHS, ENTRIES, check_arch, entry
from workbook.boundary.foresee import KNOWN_SGLANG
from workbook.errors import UsageError
from workbook.paths import OVERLAY
from workbook.types import Entry, Stack

sys.path.insert(0, str(OVERLAY))
from workbook_overlay import declare, entries

ROWS = entries.rows()
KNOWN = json.loads((OVERLAY / "workbook_overlay" / "known.json").read_text())
VERSIONS = {"0.6.1", "0.6.3", "0.6.7.post3", "0.6.11.post1", "0.6.14", "0.6.18", "0.7.2", "0.7.4"}
OF_SGLANG = ("SGLang 0.5.12", "SGLang 0.5.9")  # in which a patch of SGLang's own functions is known


def versions(function):
    """The FlashInfer versions in which a function's source is known, each as often as it is listed."""
    return sorted(version for listed in KNOWN[function].values() for version in listed.split(", "))


def test_the_workbook_and_the_overlay_read_the_same_table():
    assert [one.path for one in ENTRIES] == [row["path"] for row in ROWS]
    assert tuple(declare.ARCHS) == ARCHS


def test_a_path_is_in_the_table_once():
    assert len({one.path for one in ENTRIES}) == len(ENTRIES) == 19


@pytest.mark.parametrize("row", ENTRIES, ids=lambda row: row.path)
def test_a_row_can_be_called_and_found(row):
    assert row.path.startswith("flashinfer.") and row.meaning
    assert any(isinstance(one, dict) and "shape" in one for one in row.args)
    assert row.modules and all(module.startswith("flashinfer.") for module in row.modules)
    assert row.archs and set(row.archs) <= set(ARCHS)
    assert entry(row.path) is row
    function = entries.function_name(entries.row(row.path))
    assert all(function in entries.functions_by_module()[module] for module in row.modules)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["path"])
def test_its_source_is_known_in_every_version_and_in_one_form_each(row):
    assert versions(entries.function_name(row)) == sorted(VERSIONS)


def test_whatever_a_patch_acts_on_is_known_in_every_version():
    ours = {function for function in KNOWN if set(versions(function)) != VERSIONS}
    assert {tuple(versions(function)) for function in ours} == {OF_SGLANG}, ours


def test_a_patch_of_sglang_knows_the_releases_that_can_be_foretold():
    assert tuple(sorted(f"SGLang {release}" for release in KNOWN_SGLANG)) == OF_SGLANG


def test_the_versions_of_the_stacks_are_known():
    assert {catalog.load(Stack, name).flashinfer for name in catalog.names(Stack)} <= VERSIONS


def test_a_misspelt_field_of_a_row_is_refused():
    with pytest.raises(ValidationError, match="mutate"):
        Entry.model_validate(ROWS[0] | {"mutate": ["input"]})


def test_of_an_unknown_entry_the_nearest_is_offered():
    with pytest.raises(
        UsageError,
        match=r"No entry point 'flashinfer\.fp4_quantise'; did you mean flashinfer\.fp4_quantize\?",
    ):
        entry("flashinfer.fp4_quantise")
    with pytest.raises(UsageError, match=r"did you mean flashinfer\.rmsnorm\?"):
        entry("flashinfer.rms_norm")
    with pytest.raises(UsageError, match=r"known: .*flashinfer\.mm_fp4"):
        entry("x")


def test_an_unknown_architecture_is_refused():
    with pytest.raises(UsageError, match=r"No architecture 'sm130'; known: sm90, "):
        check_arch("sm130")
