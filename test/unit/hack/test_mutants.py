# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of planted bugs fit the sources."""

import importlib.util
from pathlib import Path

import pytest

from hack.mutants import ROOT, Mutant, Table

TABLES = sorted((ROOT / "test/sim/mutants").glob("*.toml"))
MUTANTS = [pytest.param(each, id=each.name) for table in TABLES for each in Table.read(table).mutants]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_changes_one_place_of_its_module(mutant: Mutant) -> None:
    spec = importlib.util.find_spec(mutant.module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    assert mutant.applied(source) != source


def test_a_text_that_occurs_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="2 times"):
        Mutant("twice", "m", "a", "b").applied("aa")
