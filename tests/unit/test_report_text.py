"""Whatever a log holds, it is shown as text and nothing else."""

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.report_samples import HOSTILE
from workbook.report.text import elide, escape, one_line, plain


class Seen(HTMLParser):
    """What a parser makes of markup: the tags with their attributes, and the text."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(alphabet=st.characters(), max_size=200))
def test_escaped_text_is_the_same_text_and_no_tag(text: str) -> None:
    seen = Seen(f'<p title="{escape(text)}">{escape(text)}</p>')
    assert seen.tags == [("p", {"title": plain(text)})]
    assert seen.text == plain(text)


@given(st.text(alphabet=st.sampled_from("\x1b\x00\x07\x9b\r\n[]m;31\\ax\u202e\ud800"), max_size=60))
def test_nothing_that_acts_on_a_terminal_or_reorders_text_is_left(text: str) -> None:
    shown = plain(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown)
    assert plain(shown) == shown
    shown.encode("utf-8")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;title\x07text", "text"),
        ("an open \x1b]0; title hides nothing", "an open 0; title hides nothing"),
        (" 10%\r 60%\r100%\nnext", "100%\nnext"),
        ("dos\r\nline", "dos\nline"),
        ("a\x00b", "a␀b"),
        ("a\u202eb", "a[U+202E]b"),
        ("a\tb", "a\tb"),
    ],
)
def test_plain(raw: str, shown: str) -> None:
    assert plain(raw) == shown


def test_a_hostile_line_is_text() -> None:
    assert Seen(escape(HOSTILE)).tags == []


def test_a_long_line_takes_no_long_time() -> None:
    assert len(plain("x" * 2_000_000)) == 2_000_000


@given(st.text(max_size=80), st.integers(min_value=1, max_value=90))
def test_elided_text_keeps_its_ends_and_its_limit(text: str, limit: int) -> None:
    short = elide(text, limit)
    assert len(short) <= limit
    if len(text) <= limit:
        assert short == text
    else:
        head, _, tail = short.partition("…")
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(short) == limit


def test_one_line() -> None:
    assert one_line("a\n  b\tc", 20) == "a b c"
