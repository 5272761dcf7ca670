# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Random edits depend on the seed only, are tested in a copy of the repository, and are counted."""

import itertools
import json
from pathlib import Path

import pytest

from hack.mutation_score import (
    KILLED,
    SURVIVED,
    TIMED_OUT,
    UNJUDGED,
    Edit,
    draw,
    interval,
    main,
    report,
    run,
    selected,
)

SOURCE = '''"""An é before what is edited."""

def larger(left: int, right: int) -> int:
    """Return the larger one."""
    return left if left > right else right  # é
'''
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
        "pytest.ini": "[pytest]\nmarkers =\n  slow\n  alone\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def edit(old: str, new: str) -> tuple[Edit, str]:
    assert old in SOURCE
    return Edit("pkg/room/module.py", 5, "by hand", ""), SOURCE.replace(old, new)


def test_the_seed_decides_which_edits_are_drawn(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/module.py").write_text("".join(f"v{number} = {number} < 5\n" for number in range(50)))
    drawn = [list(itertools.islice(draw(tmp_path, seed, ["pkg"]), 20)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    assert len({each.line for each, _ in drawn[0]}) == 20


def test_an_edit_replaces_the_operator_and_leaves_the_rest(root: Path) -> None:
    drawn = draw(root, 1, ["pkg/room/module.py"])  # one line can be edited
    ((made, text),) = drawn
    assert (made.file, made.line) == ("pkg/room/module.py", 5)
    assert made.diff.startswith("-    return left if left > right else right  # é\n+    return ")
    assert text.splitlines()[:4] == SOURCE.splitlines()[:4]


def test_an_edit_is_noticed_unless_all_tests_pass_and_then_taken_back(root: Path) -> None:
    edits = [edit("left > right", "left < right"), edit("left > right", "left >= right")]
    killed, survived = run(root, edits)
    assert (killed.outcome, survived.outcome) == (KILLED, SURVIVED)
    assert killed.by == "test/unit/room/test_module.py::test_larger"
    assert (root / "pkg/room/module.py").read_text() == SOURCE


def test_an_endless_loop_is_timed_out_and_a_long_test_is_not(root: Path) -> None:
    endless = edit("return left if", "while True: ...\n    return left if")
    (result,) = run(root, [endless], 3)
    assert result.outcome == TIMED_OUT

    for name in ("module", "earlier"):
        (root / f"test/unit/room/test_{name}.py").write_text(
            "def test_long() -> None:\n    while True: ...\n"
        )
    (result,) = run(root, [edit("left > right", "left < right")], 3)
    assert result.outcome == SURVIVED


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


def test_the_interval_contains_the_rate_and_shrinks_with_the_number() -> None:
    assert interval(8, 10) == pytest.approx((0.490, 0.943), abs=0.001)
    assert interval(800, 1000) == pytest.approx((0.774, 0.824), abs=0.001)
    assert interval(0, 0) == (0.0, 1.0)


def test_results_of_other_draws_are_refused_and_enough_ones_only_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    first = {"seed": 1, "commit": "c" * 40, "only": ["pkg"]}
    found = {"file": "pkg/a/b.py", "line": 7, "operator": "Number", "diff": "-1\n+2", "by": ""}
    lines = [first, found | {"outcome": SURVIVED}, found | {"outcome": KILLED}]
    results.write_text("".join(json.dumps(each) + "\n" for each in lines))
    given = ["--only", "pkg", "--count", "2", "--results", str(results)]

    assert main(given) == 0
    shown = capsys.readouterr().out
    assert "| pkg.a | 2 | 1 | 0 | 0 | 1 | 50% (9% to 91%) |" in shown
    assert "pkg/a/b.py:7 (Number)\n-1\n+2" in shown
    with pytest.raises(SystemExit):
        main([*given, "--seed", "2"])


def test_what_cannot_be_imported_and_a_test_that_fails_anyway_count_neither_way(root: Path) -> None:
    (unimported,) = run(root, [edit("def larger(left", "def smaller(left")])
    (root / "test/unit/room/test_module.py").write_text("def test_it() -> None:\n    assert False\n")
    (failing,) = run(root, [edit("left > right", "left < right")])
    assert (unimported.outcome, failing.outcome) == (UNJUDGED, UNJUDGED)
    assert "| pkg.room | 2 | 0 | 0 | 2 | 0 | 0% (0% to 100%) |" in report([unimported, failing], "title")
