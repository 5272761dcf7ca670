# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The search for planted bugs."""

from pathlib import Path

import pytest

from hack.mutants import Mutant, main


def test_a_text_that_occurs_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="2 times"):
        Mutant("twice", "m", "a", "b").applied("aa")


LIVES = """
from controller_runtime import simtest
from controller_runtime.leaderelection import leaderelection

def scenario(sim):
    async def look(sim):
        assert leaderelection.JITTER == 1.2 and {healthy}, "the jitter is wrong"

    sim.finally_(look)

test_lives = simtest.simulate(seeds=1, minutes=0.1, faults=0.0)(scenario)
"""
PLANTED = """
scenarios = ["{file}::test_lives"]

[[mutant]]
name = "jitter"
module = "controller_runtime.leaderelection.leaderelection"
old = "JITTER: Final = 1.2"
new = "JITTER: Final = 1.3"
"""


@pytest.mark.parametrize("healthy", [True, False])
def test_the_life_that_finds_a_bug_must_pass_without_it(tmp_path: Path, healthy: bool) -> None:
    lives, table = tmp_path / "lives.py", tmp_path / "planted.toml"
    lives.write_text(LIVES.format(healthy=healthy))
    table.write_text(PLANTED.format(file=lives))
    if healthy:
        assert main([str(table), "--lives", "1"]) == 0
    else:
        with pytest.raises(
            SystemExit, match=r"the life that finds 'jitter' also fails without it: .*the jitter is wrong"
        ):
            main([str(table), "--lives", "1"])
