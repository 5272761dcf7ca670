# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Random edits depend on the seed only, and the tests of the edited module are run until one fails."""

from pathlib import Path

import pytest
from cosmic_ray.mutating import mutate_code  # type: ignore[import-untyped]  # it has no types
from cosmic_ray.plugins import get_operator  # type: ignore[import-untyped]  # it has no types
from cosmic_ray.work_db import WorkDB, use_db  # type: ignore[import-untyped]  # it has no types
from cosmic_ray.work_item import MutationSpec, WorkItem  # type: ignore[import-untyped]  # it has no types

from hack.mutation_score import judge, main, selected

SOURCE = "def larger(left: int, right: int) -> int:\n    return left if left > right else right\n"
TEST = """
from pkg.room.module import larger

def test_larger() -> None:
    assert larger(1, 3) == 3
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write one module and its tests to a folder, and return the folder."""
    for name, text in {
        "pkg/__init__.py": "",  # without it, the installed package would be imported
        "pkg/room/module.py": SOURCE,
        "test/unit/room/test_module.py": TEST,
        "test/unit/room/test_earlier.py": TEST,  # comes first in alphabetical order
        "test/unit/test_other.py": TEST,
        "test/parity/test_parity.py": "def test_nothing() -> None: ...\n",
        "pytest.ini": "[pytest]\nmarkers =\n  slow\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def drawn(session: Path, operator: str, *arguments: str) -> list[tuple[str, int]]:
    """Return the places that are drawn from two files with two edits in each of 50 lines."""
    with use_db(session, WorkDB.Mode.create) as database:
        for number in range(200):
            place = (number // 4 + 1, number % 2)
            spec = MutationSpec(Path(f"pkg/{number % 2}.py"), operator, number, place, (place[0], 9), {})
            database.add_work_item(WorkItem(f"job {number}", [spec]))
    assert main(["--draw", str(session), *arguments]) == 0
    with use_db(session, WorkDB.Mode.open) as database:
        items = [item.mutations[0] for item in database.work_items]
        assert len(database.pending_work_items) == len(items)
    session.unlink()
    return [(str(each.module_path), each.start_pos[0]) for each in items]


def test_the_seed_decides_which_edits_are_drawn(tmp_path: Path) -> None:
    session, operator = tmp_path / "session.sqlite", "core/NumberReplacer"
    first, again, other = (drawn(session, operator, "--seed", seed, "--count", "20") for seed in "112")
    assert first == again
    assert first != other
    assert len(set(first)) == len(first) == 20
    only = drawn(session, operator, "--only", "pkg/1", "--count", "80")
    assert set(only) == {("pkg/1.py", line) for line in range(1, 51)}
    assert drawn(session, "core/ReplaceBinaryOperator_BitOr_Add") == []


@pytest.mark.parametrize(("operator", "noticed"), [("Gt_Lt", True), ("Gt_GtE", False)])
def test_an_edit_is_noticed_unless_all_tests_pass(
    root: Path, capfd: pytest.CaptureFixture[str], operator: str, noticed: bool
) -> None:
    edited = mutate_code(SOURCE, get_operator(f"core/ReplaceComparisonOperator_{operator}")(), 0)
    assert edited not in (None, SOURCE)
    (root / "pkg/room/module.py").write_text(edited)
    assert bool(judge(root, "pkg/room/module.py")) is noticed
    assert ("FAILED test/unit/room/test_module.py::test_larger" in capfd.readouterr().out) is noticed


@pytest.mark.parametrize(("loop", "noticed"), [("while True: ...", True), ("", False)])
def test_an_endless_loop_is_noticed_and_many_tests_are_not(root: Path, loop: str, noticed: bool) -> None:
    (root / "pkg/room/module.py").write_text(SOURCE.replace("    return", f"    {loop or '...'}\n    return"))
    many = "import time\nfor number in range(30):\n    def test_it(end=0.2) -> None:\n        began = time.process_time()\n"
    many += (
        "        while time.process_time() - began < end: ...\n    globals()[f'test_{number}'] = test_it\n"
    )
    (root / "test/unit/room/test_later.py").write_text(many)
    assert bool(judge(root, "pkg/room/module.py", 4)) is noticed


@pytest.mark.parametrize(
    ("file", "house", "paths"),
    [
        ("pkg/room/module.py", ".", ["room/test_module.py", "room/test_earlier.py"]),
        ("pkg/room/_earlier/__init__.py", ".", ["room/test_earlier.py", "room/test_module.py"]),
        ("pkg/none/other.py", ".", ["test_other.py", "room/test_earlier.py", "room/test_module.py"]),
        ("controller-runtime/controller_runtime/cache/a.py", "controller-runtime", ["cache/test_a.py"]),
    ],
)
def test_the_folder_that_mirrors_the_package_has_the_tests_and_the_modules_own_are_first(
    root: Path, file: str, house: str, paths: list[str]
) -> None:
    (root / "controller-runtime/test/unit/cache").mkdir(parents=True)
    (root / "controller-runtime/test/unit/cache/test_a.py").touch()
    parity = ["test/parity"] if house == "." else []
    assert selected(file, root) == (root / house, [*(f"test/unit/{path}" for path in paths), *parity])
