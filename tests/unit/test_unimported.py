"""What is read of a file is what `inspect` says of the imported function, so that both have one hash."""

import inspect
import json.decoder
import sys
import textwrap
from pathlib import Path

import pytest

from workbook.paths import OVERLAY

sys.path.insert(0, str(OVERLAY))
from workbook_overlay import unimported

FUNCTIONS = {
    "JSONDecoder.raw_decode": json.decoder.JSONDecoder.raw_decode,
    "JSONDecoder.__init__": json.decoder.JSONDecoder.__init__,
    "py_scanstring": json.decoder.py_scanstring,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_source_is_that_of_inspect(name):
    file = unimported.file_of("json.decoder")
    assert file == Path(json.decoder.__file__)
    assert unimported.source_of(file, name) == inspect.getsource(FUNCTIONS[name])


def test_decorators_belong_to_it_and_what_is_missing_is_none(tmp_path):
    file = tmp_path / "module.py"
    file.write_text(
        textwrap.dedent("""
        class Owner:
            @property
            # why
            def method(self):
                return 1
            # after
        """)
    )
    assert unimported.source_of(file, "Owner.method").startswith("    @property\n    # why\n    def method")
    assert unimported.source_of(file, "Owner.method").endswith("return 1\n")
    assert unimported.source_of(file, "Owner.other") is None
    assert unimported.source_of(file, "method") is None


def test_a_module_without_a_file_has_none():
    assert unimported.file_of("json.no_such_module") is None
    assert unimported.file_of("no_such_package.module") is None
