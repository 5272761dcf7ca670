# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Taking a large page of a list apart without holding the event loop.

The decoder goes through a page in one call: 170 ms for 20 objects of 1.3 MB with 430,000 empty objects each. The
text of a large page is cut where an item begins as the first one does, and each item is then looked through in a
call of its own.
"""

from __future__ import annotations

import re
from typing import Final

import anyio.lowlevel
import msgspec

from . import codec, errors

LARGE: Final = 4 << 20
"""Bytes of a page that are decoded in one call."""
_ITEMS: Final = b'"items":['
_BEGIN: Final = re.compile(rb'\{(?:"apiVersion":"[^"\\]{1,512}","kind":"[^"\\]{1,256}",)?"metadata":\{')
_HEAD: Final = 4096
"""Bytes within which the items of a list begin: before them are its kind and metadata."""


class _Object(msgspec.Struct):
    """An object whose fields are skipped."""


_check: Final = msgspec.json.Decoder(_Object).decode


async def split(body: bytes) -> codec.Page:
    """Return a list in its parts; BadObjectError when the body is not a list."""
    page = await _cut(body) if len(body) > LARGE else None
    return page or codec.split_page(body)


async def _cut(body: bytes) -> codec.Page | None:
    """Return the parts of a list that looks as API servers write them, None for any other text."""
    begin = body.find(_ITEMS, 0, _HEAD) + len(_ITEMS)
    first = _BEGIN.match(body, begin)
    end = body.rfind(b"}]") + 1
    if begin < len(_ITEMS) or first is None or end <= begin:
        return None
    between = b"}," + first.group()
    items = []
    try:
        page = codec.split_page(body[:begin] + body[end:])
        while begin < end:
            cut = body.find(between, begin, end) + 1
            items.append(msgspec.Raw(body[begin : cut or end]))
            begin = cut + 1 if cut else end
            # A text that was cut elsewhere than between two items is not valid.
            _check(items[-1])
            await anyio.lowlevel.checkpoint()
    except (msgspec.DecodeError, RecursionError, errors.BadObjectError):
        return None
    page.items = items
    return page
