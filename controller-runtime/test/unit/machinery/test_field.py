# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Messages of field errors."""

import pytest

from controller_runtime.apis.core.v1 import Container, ContainerPort, ResourceRequirements
from controller_runtime.machinery import field

PATH = field.Path("spec").child("trainer", "env").index(2).child("labels").key("a/b")


def test_a_path_is_written_with_dots_and_brackets() -> None:
    assert str(PATH) == "spec.trainer.env[2].labels[a/b]"
    assert str(field.Path("spec", "x")) == "spec.x"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (field.invalid(field.Path("a"), 'x"y', "bad"), 'a: Invalid value: "x\\"y": bad'),
        (field.invalid(field.Path("a"), 3, "bad"), "a: Invalid value: 3: bad"),
        (field.invalid(field.Path("a"), True, "bad"), "a: Invalid value: true: bad"),
        (field.invalid(field.Path("a"), None, "bad"), "a: Invalid value: null: bad"),
        (field.invalid(field.Path("a"), ["b", "<&>"], ""), 'a: Invalid value: ["b","\\u003c\\u0026\\u003e"]'),
        (field.invalid(field.Path("a"), field.Quoted("é<"), "d"), 'a: Invalid value: "é\\u003c": d'),
        (field.invalid(field.Path("a"), {"b": 1, "a": {}}, ""), 'a: Invalid value: {"a":{},"b":1}'),
        (field.invalid(field.Path("a"), 1.5, "d"), "a: Invalid value: 1.5: d"),
        (field.required(field.Path("a"), "give it"), "a: Required value: give it"),
        (field.required(field.Path("a"), ""), "a: Required value"),
        (field.forbidden(field.Path("a"), "no"), "a: Forbidden: no"),
        (field.duplicate(field.Path("a"), "b"), 'a: Duplicate value: "b"'),
        (field.not_found(field.Path("a"), "b"), 'a: Not found: "b"'),
        (
            field.not_supported(field.Path("a"), "b", ["c", "d"]),
            'a: Unsupported value: "b": supported values: "c", "d"',
        ),
        (field.not_supported(field.Path("a"), "b", []), 'a: Unsupported value: "b"'),
        (field.too_long(field.Path("a"), 1), "a: Too long: may not be more than 1 byte"),
        (field.too_long(field.Path("a"), -1), "a: Too long: value is too long"),
        (field.too_many(field.Path("a"), 3, 2), "a: Too many: 3: must have at most 2 items"),
        (field.too_many(field.Path("a"), -1, -1), "a: Too many: has too many items"),
        (field.internal(field.Path("a"), ValueError("boom")), "a: Internal error: boom"),
        (field.internal(None, "boom"), "<nil>: Internal error: boom"),
    ],
)
def test_texts(error: field.FieldError, text: str) -> None:
    assert str(error) == text


def test_structs_are_shown_in_their_own_order_with_what_go_always_writes() -> None:
    container = Container.from_dict(
        {"image": "i", "name": "node", "env": [{"value": "", "name": "A"}], "args": []}
    )
    assert str(field.invalid(field.Path("c"), [container], "d")) == (
        'c: Invalid value: [{"name":"node","image":"i","env":[{"name":"A"}],"resources":{}}]: d'
    )
    port = ContainerPort.from_dict({"protocol": "TCP", "containerPort": 80})
    assert (
        field.invalid(field.Path("r"), port, "").body
        == 'Invalid value: {"containerPort":80,"protocol":"TCP"}'
    )


def test_several_errors_become_one_text_in_brackets_and_each_text_stands_once() -> None:
    a, b = field.forbidden(field.Path("a"), "x"), field.forbidden(field.Path("b"), "y")
    aggregate = field.ErrorList([a, b, field.forbidden(field.Path("a"), "x")]).to_aggregate()
    assert aggregate is not None
    assert str(aggregate) == "[a: Forbidden: x, b: Forbidden: y]"
    assert aggregate.errors == [a, b]
    assert (
        str(field.AggregateError([a, field.AggregateError([b, a])])) == "[a: Forbidden: x, b: Forbidden: y]"
    )


def test_an_error_that_is_there_many_times_is_worded_once() -> None:
    worded = 0

    class Costly(int):
        def __str__(self) -> str:
            nonlocal worded
            worded += 1
            return "1"

    error = field.invalid(field.Path("a"), Costly(), "x")
    aggregate = field.ErrorList([error] * 1000).to_aggregate()
    assert aggregate is not None
    assert aggregate.errors == [error]
    assert worded == 1


def test_one_error_stands_alone_and_none_is_none() -> None:
    only = field.ErrorList([field.required(field.Path("a"), "")] * 2).to_aggregate()
    assert str(only) == "a: Required value"
    assert field.ErrorList().to_aggregate() is None


def test_causes_are_what_a_status_carries() -> None:
    aggregate = field.AggregateError([field.invalid(field.Path("a"), "b", "c"), ValueError("other")])
    assert aggregate.causes == [
        {"reason": "FieldValueInvalid", "message": 'Invalid value: "b": c', "field": "a"}
    ]


def test_an_error_can_be_raised_compared_and_hashed() -> None:
    error = field.invalid(field.Path("a"), ResourceRequirements(), "d")
    with pytest.raises(field.FieldError, match=r"a: Invalid value: \{\}: d"):
        raise error
    assert len({error, field.invalid(field.Path("a"), ResourceRequirements(), "d")}) == 1
