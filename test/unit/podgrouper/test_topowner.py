# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from controller_runtime.machinery import Unstructured

from pkg.podgrouper.topowner import top_owner_metadata


@pytest.mark.parametrize(
    ("uid", "written"),
    [
        ("0386aa29-91ac-510c-8732-5b1401249019", "0386aa29-91ac-510c-8732-5b1401249019"),
        ("a.b-c", "a.b-c"),
        ("", '""'),
        ("12345678901234567890", '"12345678901234567890"'),
        ("1e3", '"1e3"'),
        ("1_000", '"1_000"'),
        ("0x1F", '"0x1F"'),
        ("1e309", "1e309"),
        ("0e309", '"0e309"'),
        ("0o-17", '"0o-17"'),
        ("0o-8", "0o-8"),
        ("0x10000000000000000", "0x10000000000000000"),
        ("-0x8000000000000000", '"-0x8000000000000000"'),
        ("-0x8000000000000001", "-0x8000000000000001"),
        (".5_", ".5_"),
        ("1:30", '"1:30"'),
        ("-.Inf", '"-.Inf"'),
        ("2024-02-30", "2024-02-30"),
        ("2024-02-29", '"2024-02-29"'),
        ("2024-2-9T1:2:3Z", '"2024-2-9T1:2:3Z"'),
        ("On", '"On"'),
        ("oN", "oN"),
        ("null", '"null"'),
        ("#hash", "'#hash'"),
        ("'quoted'", "'''quoted'''"),
        (" lead", "' lead'"),
        ("tab\tin", '"tab\\tin"'),
        ("é", "é"),
        ("line\nbreak", "|-\n    line\n    break"),
        ("key: value", "'key: value'"),
        ("😀", '"\\U0001F600"'),
        ("next\x85line", '"next\\Nline"'),
        ("tab\x00and\u2028line\u2029", '"tab\\0and\\Lline\\P"'),
        ("a\ufeff'\"", '"a\\uFEFF\'\\""'),
        ("\ufeff-a", '"\\uFEFF-a"'),
        ("tab\tand\nbreak", "|-\n    tab\tand\n    break"),
        ("space \nbreak", '"space \\nbreak"'),
        ("\nbreak", "|4-\n    break"),
        ("\n", "|4+"),
        ("break\n", "|\n    break"),
        ("break\n\n", "|+\n    break\n"),
    ],
)
def test_text_is_quoted_where_a_reader_would_take_it_for_something_else(uid: str, written: str) -> None:
    owner = Unstructured.wrap(
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "rs", "uid": uid}}
    )

    assert (
        top_owner_metadata(owner) == f"name: rs\nuid: {written}\ngroup: apps\nversion: v1\nkind: ReplicaSet\n"
    )
