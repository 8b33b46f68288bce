"""The descriptions under data/: every shipped one loads, and a mistake in one gives a sentence."""

from pathlib import Path

import pytest

from workbook import catalog
from workbook.errors import UsageError
from workbook.types import LaunchProfile, Node, Record, Stack

GOOD = {
    LaunchProfile: {
        "name": "x", "description": "''", "model": "m", "concurrencies": "[1]",
        "input_tokens": "8", "output_tokens": "8",
    },
    Node: {"name": "x"},
    Stack: {"name": "x", "torch": "'2.9'", "flashinfer": "'0.6'", "sglang": "'0.5'", "purpose": "p"},
}  # fmt: skip


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(catalog, "DATA", tmp_path)
    return tmp_path


def refused(data: Path, kind: type[Record], text: str) -> str:
    path = data / catalog.FOLDERS[kind] / "x.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        catalog.load(kind, "x")
    said = str(caught.value)
    assert said.startswith(str(path)) and "\n" not in said
    return said.removeprefix(str(path))


@pytest.mark.parametrize("kind", [LaunchProfile, Node, Stack])
def test_every_shipped_description_loads(kind: type[Record]) -> None:
    assert catalog.names(kind)
    for name in catalog.names(kind):
        catalog.load(kind, name)


@pytest.mark.parametrize(
    ("kind", "key", "value", "sentence"),
    [
        (LaunchProfile, "tpp", "4", ": tpp is no key; did you mean tp?"),
        (LaunchProfile, "capture_mod", "eager", ": capture_mod is no key; did you mean capture_mode?"),
        (LaunchProfile, "zzz", "4", ": zzz is no key; known: name, description, model, "),
        (LaunchProfile, "tp", "'8'", ": tp: '8' will not do; it should be a valid integer."),
        (LaunchProfile, "tp", "true", ": tp: True will not do; it should be a valid integer."),
        (LaunchProfile, "tp", "0", ": tp: 0 will not do; it should be greater than or equal to 1."),
        (LaunchProfile, "memory_fraction", "1.5", ": memory_fraction: 1.5 will not do; it should be less "),
        (
            LaunchProfile,
            "memory_fraction",
            ".nan",
            ": memory_fraction: nan will not do; it should be a finite",
        ),
        (LaunchProfile, "capture_mode", "piecwise", "it should be 'eager', 'decode-graphs', 'piecewise' or "),
        (LaunchProfile, "concurrencies", "[1, -1]", ": concurrencies.1: -1 will not do; "),
        (LaunchProfile, "concurrencies", "[]", ": concurrencies: [] will not do; it should have at least 1"),
        (LaunchProfile, "extra_flags", "[--page-size, 3]", ": extra_flags.1: 3 will not do; .*, in quotes."),
        (LaunchProfile, "env", "{A: 1}", ": env.A: 1 will not do; it should be a valid string, in quotes."),
        (LaunchProfile, "env", "{A-B: '1'}", ": env.A-B: 'A-B' will not do; it should match pattern"),
        (LaunchProfile, "name", "y", ": name: 'y' will not do; it is the file's own, x."),
        (Node, "pyhton", "/usr/bin/python3", ": pyhton is no key; did you mean python?"),
        (Node, "kind", "ssh", ": host belongs to a node of kind ssh"),
        (Node, "gpus", "[-1]", ": gpus.0: -1 will not do; "),
        (Node, "python", r'"/bin/\0"', ": python: '/bin/\\x00' will not do; "),
        (LaunchProfile, "model", r'"a\0"', ": model: 'a\\x00' will not do; "),
        (LaunchProfile, "model", "''", ": model: '' will not do; "),
        (LaunchProfile, "extra_flags", r'["a\0"]', ": extra_flags.0: 'a\\x00' will not do; "),
        (LaunchProfile, "note", "2026-13-45", " is not YAML: month must be in 1..12. Mend it."),
        (LaunchProfile, "note", "&a [*a]", " is not YAML: Circular reference detected. Mend it."),
        (LaunchProfile, "tp", "9" * 5000, " is not YAML: Exceeds the limit"),
        (LaunchProfile, "note", "[" * 3000 + "]" * 3000, " is not YAML: maximum recursion depth exceeded"),
        (Stack, "torch", "2.9", ": torch: 2.9 will not do; it should be a valid string, in quotes."),
        (Stack, "full", "{installed: 4}", ": full.installed is no key; did you mean installed_gb?"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_key(
    data: Path, kind: type[Record], key: str, value: str, sentence: str
) -> None:
    lines = (f"{name}: {said}" for name, said in (GOOD[kind] | {key: value}).items())
    said = refused(data, kind, "\n".join(lines))
    before, _, after = sentence.partition(".*")
    assert before in said and after in said


def test_a_missing_key_is_named(data: Path) -> None:
    assert refused(data, LaunchProfile, "name: x") == ": description is missing; add it."
    assert refused(data, LaunchProfile, "name: x\ndescripton: d") == (
        ": descripton is no key; did you mean description?"
    )


@pytest.mark.parametrize("text", ["", "- a list", "a word"])
def test_what_is_no_description_is_refused(data: Path, text: str) -> None:
    assert "it should be an object" in refused(data, Stack, text)


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\tname: x", "name: \x07"])
def test_what_is_no_yaml_is_refused(data: Path, text: str) -> None:
    assert " is not YAML: " in refused(data, Node, text)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"No profile named 'tiny-cpuu' .* did you mean tiny-cpu"):
        catalog.load(LaunchProfile, "tiny-cpuu")
