# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A series of patches comes to what one strategic merge after another comes to, only sooner."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller_runtime.apis.machinery.patchseries import PatchSeries
from controller_runtime.apis.machinery.strategicpatch import (
    POD_TEMPLATE,
    Document,
    StrategicMergeError,
    strategic_merge_patch,
)

NAMES = st.sampled_from("abcdef")
VALUES = NAMES | st.integers(0, 2) | st.none() | st.just({"$patch": "delete"})
ENV = st.fixed_dictionaries({"name": NAMES}, optional={"value": VALUES, "$patch": st.just("delete")})
CONTAINER = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "env": st.lists(ENV, max_size=4),
        "args": st.lists(NAMES, max_size=2),
        "ports": st.lists(
            st.fixed_dictionaries({}, optional={"containerPort": st.integers(1, 2)}), max_size=2
        ),
        "$patch": st.sampled_from(["delete", "replace"]),
    },
)
SPEC = st.fixed_dictionaries(
    {},
    optional={
        "containers": st.lists(CONTAINER, max_size=5) | NAMES,
        "nodeSelector": st.dictionaries(NAMES, VALUES, max_size=2),
        "tolerations": st.lists(st.fixed_dictionaries({"key": NAMES}), max_size=2),
        "$setElementOrder/containers": st.lists(st.fixed_dictionaries({"name": NAMES}), max_size=2),
    },
)
DOCUMENT = st.fixed_dictionaries(
    {},
    optional={"spec": SPEC, "metadata": st.fixed_dictionaries({"finalizers": st.lists(NAMES, max_size=3)})},
)
PLAIN_ENV = st.lists(
    st.fixed_dictionaries({"name": NAMES, "value": NAMES}), max_size=6, unique_by=lambda e: e["name"]
)
PLAIN = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries(
            {
                "containers": st.lists(
                    st.fixed_dictionaries({"name": NAMES, "env": PLAIN_ENV}),
                    max_size=6,
                    unique_by=lambda c: c["name"],
                )
            }
        )
    }
)


def one_by_one(original: Document, patches: list[Document]) -> Any:
    try:
        for patch in patches:
            original = strategic_merge_patch(original, patch, POD_TEMPLATE)
    except StrategicMergeError as error:
        return str(error)
    return original


def in_series(original: Document, patches: list[Document]) -> Any:
    series = PatchSeries(original, POD_TEMPLATE)
    try:
        for patch in patches:
            series.merge(patch)
    except StrategicMergeError as error:
        return str(error)
    return series.document()


@given(DOCUMENT, st.lists(DOCUMENT, max_size=4))
def test_whatever_the_patches_the_outcome_is_that_of_one_after_another(
    original: Document, patches: list[Document]
) -> None:
    expected = one_by_one(*copy.deepcopy((original, patches)))
    assert in_series(original, patches) == expected


@given(PLAIN, st.lists(PLAIN, max_size=6))
def test_items_end_in_the_same_order(original: Document, patches: list[Document]) -> None:
    expected = one_by_one(*copy.deepcopy((original, patches)))
    assert in_series(original, patches) == expected


def test_a_thousand_items_put_in_the_same_place_find_room() -> None:
    patches: list[Document] = [
        {"spec": {"volumes": [{"name": "first"}, {"name": f"v{n}"}]}} for n in range(1000)
    ]
    original: Document = {"spec": {"volumes": [{"name": "first"}, {"name": "last"}]}}
    expected = one_by_one(*copy.deepcopy((original, patches)))
    assert in_series(original, patches) == expected


def test_a_document_may_be_looked_at_between_patches() -> None:
    series = PatchSeries({"spec": {"volumes": [{"name": "a"}]}}, POD_TEMPLATE)
    series.merge({"spec": {"volumes": [{"name": "b"}]}})
    assert series.document() == {"spec": {"volumes": [{"name": "b"}, {"name": "a"}]}}
    series.merge({"spec": {"volumes": [{"name": "a", "emptyDir": {}}]}})
    assert series.document() == {"spec": {"volumes": [{"name": "b"}, {"name": "a", "emptyDir": {}}]}}


def test_the_work_grows_with_the_patches_and_not_with_what_they_make() -> None:
    hashed = 0

    class Name(str):
        __slots__ = ()

        def __hash__(self) -> int:
            nonlocal hashed
            hashed += 1
            return str.__hash__(self)

    series = PatchSeries({"spec": {"volumes": []}}, POD_TEMPLATE)
    for number in range(2000):
        series.merge({"spec": {"volumes": [{"name": Name(f"v{number}")}]}})

    assert len(series.document()["spec"]["volumes"]) == 2000
    assert hashed < 20 * 2000
