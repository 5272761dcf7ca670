# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The modules and packages that documents and tables of planted bugs name exist."""

import pkgutil
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import trainerctl

import pkg
from hack.mutants import Mutant, read

ROOT = Path(__file__).parents[3]
MUTANTS = [
    pytest.param(mutant, id=f"{file.stem}: {mutant.name}")
    for file in sorted((ROOT / "test/sim/mutants").glob("*.toml"))
    for mutant in read(file)
]


@pytest.mark.parametrize("page", ["port-map.md", "dev/differences.md"])
def test_a_page_about_go_names_modules_that_exist(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    names = set(re.findall(r"`((?:pkg|controller_runtime|trainerctl)\.[a-z0-9_.]+)`", text))
    assert len(names) > 20
    assert {name for name in names if find_spec(name) is None} == set()


def test_the_architecture_has_a_row_for_each_package() -> None:
    text = (ROOT / "docs/dev/architecture.md").read_text()
    rows = re.findall(r"^\| `((?:pkg|trainerctl)\.\w+)` \|", text, re.MULTILINE)
    packages = [
        f"{house.__name__}.{each.name}"
        for house in (pkg, trainerctl)
        for each in pkgutil.iter_modules(house.__path__)
        if each.ispkg
    ]
    assert sorted(rows) == sorted(packages)


@pytest.mark.parametrize("page", ["dev/differences.md", "dev/parsers.md"])
def test_a_page_names_tests_that_exist(page: str) -> None:
    tests = re.findall(r"`([\w./-]+\.py)::(\w+)`", (ROOT / "docs" / page).read_text())
    assert len(tests) > 20
    assert [
        each for each in tests if not re.search(rf"\bdef {each[1]}\(", (ROOT / each[0]).read_text())
    ] == []


def test_the_page_of_parsers_names_modules_that_exist() -> None:
    text = (ROOT / "docs/dev/parsers.md").read_text()
    names = set(re.findall(r"`((?:pkg|controller_runtime|trainerctl)\.[a-z0-9_.]*\w)`", text))
    for package, modules in re.findall(r"`([\w.]+)\{([\w.,]+)\}`", text):
        names |= {f"{package}{module}" for module in modules.split(",")}
    assert {name for name in names if find_spec(name) is None} == set()


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_planted_bug_has_one_place_in_its_module(mutant: Mutant) -> None:
    spec = find_spec(mutant.module)
    assert spec is not None
    assert spec.origin is not None
    mutant.applied(Path(spec.origin).read_text())
