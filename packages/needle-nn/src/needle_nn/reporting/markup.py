"""HTML and SVG as text that escapes whatever is put into it.

>>> tag("p", "1 < 2", tag("b", "&"), class_="note")
'<p class="note">1 &lt; 2<b>&amp;</b></p>'
"""

import html
import re
from typing import Any

_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_EMPTY = {"meta", "img", "line", "path", "rect", "circle"}  # may do without an end tag
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*")


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def escape(text: Any) -> Markup:
    """The text as markup: special characters escaped, those that XML forbids replaced."""
    return text if isinstance(text, Markup) else Markup(html.escape(_NOT_IN_XML.sub("\ufffd", str(text)), quote=True))


def join(parts: Any) -> Markup:
    return Markup("".join(map(escape, parts)))


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """An element; `class_` is class, `stroke_width` is stroke-width, an attribute that is None is left out."""
    pairs = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    if not all(map(_NAME.fullmatch, (name, *pairs))):
        raise ValueError(f"tag: {name}, {list(pairs)}: expected names of elements and attributes")
    opened = name + "".join(f' {key}="{escape(_number(value))}"' for key, value in pairs.items())
    return Markup(f"<{opened}/>" if name in _EMPTY and not children else f"<{opened}>{join(children)}</{name}>")


def _number(value: Any) -> Any:
    """Coordinates with a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value
