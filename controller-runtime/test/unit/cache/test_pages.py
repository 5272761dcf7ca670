# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A large page has the same parts as a small one, found item by item."""

import asyncio
import json
from typing import Any

import pytest

from controller_runtime.cache import BadObjectError, codec

PADDING = "x" * 1_200_000
NAMES = {"apiVersion": "example.com/v1", "kind": "Widget"}
META = {"metadata": {"continue": "c", "resourceVersion": "7"}}


def item(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": PADDING, **fields}


def named(name: str, **fields: Any) -> dict[str, Any]:
    return {**NAMES, **item(name, **fields)}


def text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


PLAIN = [item(str(number)) for number in range(4)]
NAMED = [named(str(number)) for number in range(4)]
WITHIN = [named("a", children=[named("b"), named("c")]), named("d")]
IN_TEXT = [named("a", text=text(NAMED[:2]).decode()), *NAMED]
PAGES = {
    "of a built-in kind": {"kind": "List", **META, "items": PLAIN},
    "of a custom resource": {"apiVersion": "v1", "items": NAMED, "kind": "List", **META},
    "one item": {"items": [item("a", more=PADDING * 4)], **META},
    "no items": {"items": [], "more": [PADDING * 4, {}], **META},
    "items that are null": {"items": None, **META, "more": [{"spec": PADDING * 4}]},
    "items within items": {"items": WITHIN, **META, "more": PADDING * 2},
    "items in strings": {"items": IN_TEXT, **META},
    "items of two kinds": {"items": [*NAMED, *PLAIN], **META},
    "lists after the items": {"items": NAMED, "more": [{"metadata": {}}], **META},
    "items after all": {**META, "more": PADDING * 4, "items": PLAIN},
    "not objects": {"items": [*PLAIN, 1, None, [{}]], **META},
}


@pytest.mark.parametrize("value", PAGES.values(), ids=PAGES)
async def test_a_page_has_the_parts_that_the_decoder_finds(value: dict[str, Any]) -> None:
    body = text(value)
    assert len(body) > codec.LARGE
    found, expected = await codec.split_large_page(body), codec.split_page(body)
    assert [bytes(each) for each in found.items or ()] == [bytes(each) for each in expected.items or ()]
    assert found.metadata == expected.metadata


@pytest.mark.parametrize("kind", ["of a built-in kind", "of a custom resource"])
async def test_others_have_a_turn_between_two_items(kind: str) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(others())
    await codec.split_large_page(text(PAGES[kind]))
    task.cancel()
    assert turns >= 4


@pytest.mark.parametrize("end", [b"", b"]", b"}", b'"'])
async def test_what_is_not_a_page_is_an_error(end: bytes) -> None:
    with pytest.raises(BadObjectError):
        await codec.split_large_page(text(PAGES["of a built-in kind"])[:-2] + end)


async def test_a_large_text_without_items_is_no_page() -> None:
    with pytest.raises(BadObjectError, match="items"):
        await codec.split_large_page(text({**META, "more": [{"spec": PADDING * 4}]}))
