"""Markup from a notebook's outputs and text, reduced to what a report needs.

The workbook's own markup is escaped where it is made; this holds for whatever else a cell displayed.
"""

import re

from bleach.css_sanitizer import CSSSanitizer
from bleach.sanitizer import Cleaner

TAGS = """
a abbr b blockquote br caption code col colgroup dd del details div dl dt em figcaption figure
h1 h2 h3 h4 h5 h6 hr i img ins kbd li ol p pre q s samp small span strong sub summary sup
table tbody td tfoot th thead tr u ul wbr
"""
ATTRIBUTES = "alt aria-hidden class colspan height id open rowspan scope start style title width"
STYLES = "background-color color display font-style font-weight text-align text-decoration"
IMAGE = re.compile(r"data:image/(png|jpeg|svg\+xml);base64,[A-Za-z0-9+/=\s]*")
LINK = re.compile(r"(https?://|(?![^/?#]*:)(?!//)).*", re.IGNORECASE | re.DOTALL)
# A cleaner leaves the text of a tag that it removes, and nobody wants to read a style sheet.
WITH_CONTENT = re.compile(r"<(style|script|template|title)\b[^>]*>.*?</\1\s*>", re.IGNORECASE | re.DOTALL)

SOURCELESS = re.compile(r'<img(?: (?!src=)[\w-]+="[^"]*")*>')


def clean(markup: str) -> str:
    """The markup without anything that could run, load, or lie over something else."""
    cleaner = Cleaner(
        tags=TAGS.split(),
        attributes=_allowed,
        protocols=("http", "https", "data"),
        strip=True,
        css_sanitizer=CSSSanitizer(allowed_css_properties=STYLES.split()),
    )
    return SOURCELESS.sub("(image left out)", str(cleaner.clean(WITH_CONTENT.sub("", markup))))


def _allowed(tag: str, name: str, value: str) -> bool:
    if name == "src":
        return tag == "img" and IMAGE.fullmatch(value) is not None
    if name == "href":
        return tag == "a" and LINK.fullmatch(value) is not None
    return name in ATTRIBUTES.split()
