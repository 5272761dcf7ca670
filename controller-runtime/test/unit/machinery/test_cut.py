# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Members of JSON, cut without decoding."""

from typing import Any

import msgspec
import pytest

from controller_runtime.machinery import cut

OBJECTS: list[dict[str, Any]] = [
    {},
    {"a": 1},
    {"a": "x", "b": [1, {"c": "}"}, "]"], "d": {"e": {}}, "f": None},
    {'quote"': "\\", "back\\": '{"', "comma,": ",", "ü": "\n"},
]


@pytest.mark.parametrize("value", OBJECTS, ids=str)
@pytest.mark.parametrize("indent", [0, 2])
def test_fields_and_items_are_those_of_the_decoder(value: dict[str, Any], indent: int) -> None:
    text = msgspec.json.format(msgspec.json.encode(value), indent=indent)
    assert {name: msgspec.json.decode(raw) for name, raw in cut.fields(text).items()} == value
    listed = msgspec.json.format(msgspec.json.encode([value, *value.values()]), indent=indent)
    assert [msgspec.json.decode(raw) for raw in cut.items(listed)] == [value, *value.values()]


@pytest.mark.parametrize("text", [b"", b"1", b"[]", b"{", b'{"a":[}', b"{1:2}"])
def test_a_text_that_is_not_an_object_is_an_error(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        cut.fields(text)
