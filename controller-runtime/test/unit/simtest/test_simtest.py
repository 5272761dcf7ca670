# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Simulated lives of a small operator: the same seed gives the same life, and a bug is found, shrunk and replayed."""

import asyncio
import itertools
import json
import logging
import random
import sys
import threading
import time
from pathlib import Path

import anyio
import pytest

from controller_runtime import log, simtest
from controller_runtime.simtest import lives
from controller_runtime.simtest.__main__ import load, main
from controller_runtime.simtest.lives import FailingLife, first_failure
from controller_runtime.simtest.sealed import sealed
from controller_runtime.simtest.simulation import spread
from ctrl_testkit import sim_labels
from ctrl_testkit.sim_labels import careless, labelled

pytestmark = pytest.mark.real_time


def test_the_same_seed_gives_the_same_life_and_another_seed_another() -> None:
    first, again, other = (simtest.run(labelled, seed, minutes=2) for seed in (3, 3, 4))
    assert first.failure is None
    assert first.digest == again.digest
    assert first.timeline == again.timeline
    assert first.digest != other.digest


@pytest.fixture(scope="module")
def failed() -> simtest.Outcome:
    """The first life in which the scenario with a bug fails."""
    return next(life for seed in range(60) if (life := simtest.run(careless, seed, minutes=2)).failure)


def test_a_bug_is_found_shrunk_and_replayed(
    failed: simtest.Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    least = simtest.shrink(careless, failed, tries=25, minutes=2)
    assert least.failure is not None
    assert len(least.steps) < len(failed.steps)
    text = simtest.report(least)
    assert not [line for line in text.splitlines() if "/leases/" in line and line.endswith("-> 200")]
    assert f"seed {failed.seed} fails: AssertionError: not labelled" in text
    scenario = f"{sim_labels.__file__}::test_careless"
    assert main(["replay", scenario, str(failed.seed), "--no-shrink", "--minutes=2"]) == 1
    assert f"seed {failed.seed} fails" in capsys.readouterr().out


def test_most_steps_come_in_bursts_and_some_between_them() -> None:
    steps = list(spread(random.Random(1), "step", times=1000, length=100_000, bursts=[50_000]))
    near = sum(abs(step.at - 50_000) < 100 for step in steps)
    assert 700 < near < 800


def test_faults_hit_the_managers() -> None:
    lives = [simtest.run(labelled, seed, minutes=5) for seed in range(3)]
    lines = {(line.actor[:8], line.text) for life in lives for line in life.timeline}
    assert ("manager-", "killed") in lines


def test_after_a_life_the_root_logger_still_decides_what_is_written() -> None:
    simtest.run(labelled, 1, minutes=0.1)
    logging.root.setLevel(logging.INFO)
    assert log.logger_from("x").enabled(log.INFO)


def test_a_test_of_a_scenario_fails_with_the_report(
    failed: simtest.Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEED", str(failed.seed))
    with pytest.raises(AssertionError, match=f"seed {failed.seed} fails"):
        simtest.simulate(minutes=2, tries=8)(careless)()


def test_the_environment_chooses_the_seeds_of_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = set[int]()
    monkeypatch.setenv("SIM_WORKERS", "1")
    monkeypatch.setenv("SEEDS", "2")
    monkeypatch.setenv("FIRST_SEED", "70")
    simtest.simulate(minutes=0.1)(lambda simulation: tried.add(simulation.seed))()
    assert tried == {70, 71}


def test_a_replay_lives_the_size_of_the_test_unless_another_is_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    short = simtest.run(labelled, 3, minutes=1.0, faults=2.0, actions=0.5)
    assert len(short.steps) < len(simtest.run(labelled, 3, minutes=1.0, faults=2.0).steps)
    assert main(["replay", f"{sim_labels.__file__}::test_short", "3"]) == 0
    assert short.digest in capsys.readouterr().out
    main(["replay", f"{sim_labels.__file__}::test_short", "3", "--actions=1"])
    assert short.digest not in capsys.readouterr().out


def test_lives_are_checked_and_recorded_by_command(capsys: pytest.CaptureFixture[str]) -> None:
    scenario = f"{sim_labels.__file__}::test_short"
    assert main(["check", scenario, "--seeds=1", "--first=3"]) == 0
    assert capsys.readouterr().out == "1 seeds repeat\n"
    assert main(["record", scenario, "3"]) == 0
    assert json.loads(capsys.readouterr().out)["seed"] == 3


@pytest.mark.parametrize("workers", ["1", "3"])
def test_the_lowest_seed_that_fails_is_found_by_any_number_of_processes(
    workers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def live(seed: int) -> simtest.Outcome:
        failure = AssertionError() if seed in (5, 9, 11) else None
        return simtest.Outcome(seed, [], failure, [], f"life of {seed}")

    monkeypatch.setenv("SIM_WORKERS", workers)
    assert first_failure(live, range(20)) == FailingLife(5, "life of 5")
    assert first_failure(live, range(5)) is None


def test_a_search_whose_process_ends_early_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def live(seed: int) -> simtest.Outcome:
        raise SystemExit(seed)

    monkeypatch.setenv("SIM_WORKERS", "2")
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # an earlier test may have left an idle thread
    with pytest.raises(RuntimeError, match="ended with 1"):
        first_failure(live, range(2))


@pytest.fixture(autouse=True)
def _own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore ``sys.path`` after the test: loading a scenario adds its folder."""
    monkeypatch.setattr(sys, "path", sys.path[:])


def test_a_scenario_that_is_loaded_from_its_file_has_the_clock_of_the_run(tmp_path: Path) -> None:
    file = tmp_path / "test_clock_of_a_scenario.py"
    file.write_text(
        "from datetime import UTC, datetime\n"
        "from controller_runtime import simtest\n"
        "async def year(sim):\n"
        "    assert datetime.now(UTC).year == 2026 and datetime.now(UTC).month == 1, datetime.now(UTC)\n"
        "    assert isinstance(datetime.now(UTC), datetime)\n"
        "test_it = simtest.simulate(seeds=1, minutes=0.1)(lambda sim: sim.finally_(year))\n"
    )
    assert load(f"{file}::test_it").run(0).failure is None


def test_a_scenario_of_a_file_with_the_name_of_another_module_is_not_loaded(tmp_path: Path) -> None:
    file = tmp_path / "json.py"
    file.write_text("")
    with pytest.raises(SystemExit, match="has the name of the module"):
        load(f"{file}::test_it")


def test_the_order_of_ready_tasks_is_drawn_and_each_keeps_its_own() -> None:
    def order(seed: int) -> list[str]:
        loop, seen = simtest.SimLoop(random.Random(seed)), list[str]()

        async def count(name: str) -> None:
            for number in range(3):
                seen.append(f"{name}{number}")
                await asyncio.sleep(0)

        async def both() -> None:
            await asyncio.gather(count("a"), count("b"))

        loop.run_until_complete(both())
        loop.close()
        return seen

    orders = [order(seed) for seed in range(20)]
    assert len({tuple(each) for each in orders}) > 3
    for each in orders:
        assert [name for name in each if name[0] == "a"] == ["a0", "a1", "a2"]


def test_a_program_that_waits_for_ever_is_found() -> None:
    loop = simtest.SimLoop(random.Random(0))
    with pytest.raises(simtest.DeadlockError):
        loop.run_until_complete(anyio.sleep_forever())
    loop.close()


def test_threads_and_waits_outside_are_refused_and_time_is_the_loops() -> None:
    loop = simtest.SimLoop(random.Random(0))

    async def leave() -> float:
        before = time.time()
        await anyio.sleep(3600)
        with pytest.raises(simtest.LeakError):
            time.sleep(1)  # noqa: ASYNC251 -- refused
        with pytest.raises(simtest.LeakError):
            threading.Thread(target=print).start()
        return time.time() - before

    with sealed(loop, random.Random(1)):
        assert loop.run_until_complete(leave()) == pytest.approx(3600)
    loop.close()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_life_that_depends_on_earlier_ones_is_found(workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lives = itertools.count(1)

    def kept(sim: simtest.Simulation) -> None:
        sim.record("program", f"life {next(lives)}")

    monkeypatch.setenv("SIM_WORKERS", workers)
    with pytest.raises(simtest.LeakError, match=r"seed 3 runs differently the second time"):
        simtest.simulate(seeds=2, first=3, minutes=0.1)(kept)()


def test_each_seed_is_lived_once_and_the_first_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "lived"

    def noted(sim: simtest.Simulation) -> None:
        with file.open("a") as lived:
            lived.write(f"{sim.seed}\n")

    monkeypatch.setattr(lives, "_BATCH", 2)
    for workers in ("1", "3"):
        file.write_text("")
        monkeypatch.setenv("SIM_WORKERS", workers)
        simtest.simulate(seeds=10, minutes=0.1)(noted)()
        assert sorted(map(int, file.read_text().split())) == [0, *range(10)]
