# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of planted bugs fit the sources."""

import importlib.util
from pathlib import Path

import pytest

from hack.mutants import ROOT, Mutant, Record, Result, Table, written

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


def test_the_documented_results_are_the_recorded_ones() -> None:
    document = (ROOT / "docs/simulation.md").read_text()
    record = Record(ROOT / "test/sim/mutants/results.jsonl")
    assert written(document, [Table.read(each) for each in TABLES], record) == document


def test_a_result_belongs_to_one_edit_and_the_last_one_counts(tmp_path: Path) -> None:
    first, second = Mutant("a", "m", "old", "new"), Mutant("a", "m", "old", "newer")
    table, file = Table(Path("t.toml"), [], [first]), tmp_path / "results"
    record = Record(file)
    record.add(Result("t", "a", first.digest, 30, found=False))
    record.add(Result("t", "a", first.digest, 41, found=True, failure="test_it 3: AssertionError: too late"))

    text = written("<!-- mutants: t -->\n\n<!-- end -->", [table], Record(file))

    assert "| a | 41 | too late |" in text
    assert "1 of 1 are found; no search was longer than 41 lives." in text
    assert Record(file).of(table, second).searched == 0
