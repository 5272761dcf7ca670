# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The whole manager in a simulated cluster."""

from __future__ import annotations

import math
import random
from http import HTTPStatus

import anyio
import pytest
from controller_runtime import simtest
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.simtest import Simulation

from pkg import features
from pkg.apis.config.v1alpha1 import V2_3
from pkg.apis.jobset.v1alpha2 import JobSet
from testkit.sim import runtimes, wakeups
from testkit.sim.administrators import Administrators
from testkit.sim.calm import Calm
from testkit.sim.cluster import world
from testkit.sim.finalizercontrollers import FinalizerControllers
from testkit.sim.managers import Writes, check_managers, renew, revoke
from testkit.sim.replacingusers import ReplacingUsers
from testkit.sim.restchecks import RestChecks
from testkit.sim.rules import Rules
from testkit.sim.snapshots import Snapshots
from testkit.sim.spechistory import SpecHistory
from testkit.sim.stories import Stories
from testkit.sim.trainers import install_authority, train_job_of
from testkit.sim.users import Users

pytestmark = pytest.mark.timeout(
    1800
)  # simulations compute for minutes, and several times as long on a busy machine

_NAMES = 6
"""The number of TrainJob names in a simulation."""


def scenario(sim: Simulation) -> None:
    """Simulate users, administrators, Kubernetes' controllers, Kueue and two managers, with faults."""
    cluster = world(sim)
    past = SpecHistory(sim)
    Writes(sim)
    users, administrators = Users(max(2, round(_NAMES * sim.actions))), Administrators(cluster)
    users.register(sim)
    ReplacingUsers(sim, users)
    administrators.register(sim)
    FinalizerControllers(sim, administrators.lost)
    sim.action(revoke, times=0.5)
    rules, end = Rules(sim, past, administrators.lost), RestChecks(users, administrators, past)
    sim.on_change(rules.see)
    sim.on_change(lambda event: end.see(sim, event))
    sim.finally_(end.check)
    sim.finally_(Calm(users, administrators, end, cluster.nodes).check)
    sim.finally_(check_managers)


def moves(sim: Simulation) -> None:
    """Simulate users who suspend, change and resume TrainJobs between two reconciles, or while no manager leads."""
    cluster = world(sim, pods_fail=0.0)
    past, users, administrators = SpecHistory(sim), Users(_NAMES), Administrators(cluster)
    rules, end = Rules(sim, past, administrators.lost), RestChecks(users, administrators, past)
    sim.on_change(rules.see)
    sim.on_change(lambda event: end.see(sim, event))

    async def act(sim: Simulation) -> None:
        await administrators.install(sim)
        rng, stories = random.Random(f"{sim.seed}/moves"), Stories(users, cluster.nodes)
        for name in users.pick_names(rng, _NAMES):
            await rng.choice([stories.move, stories.move_unled])(sim, rng, name)
        stories.let_pods_end()
        await end.check_rest(sim)

    sim.finally_(act)
    sim.finally_(check_managers)


def keeping(sim: Simulation) -> None:
    """Simulate managers of the second generation, and users who also delete and edit snapshots."""
    cluster = world(sim, version=V2_3)
    past = SpecHistory(sim)
    Writes(sim)
    users, administrators, snapshots = Users(4), Administrators(cluster), Snapshots(sim, past)
    users.register(sim)
    administrators.register(sim)
    snapshots.register()
    sim.action(revoke, times=0.5)
    # The second generation does not protect runtimes, so they may be deleted at any time.
    rules = Rules(sim, past, dict.fromkeys(runtimes.NAMES, math.inf))
    end = RestChecks(users, administrators, past, snapshots)
    sim.on_change(rules.see)
    sim.on_change(snapshots.see)
    sim.on_change(lambda event: end.see(sim, event))
    sim.finally_(end.check)
    sim.finally_(snapshots.check_return)
    sim.finally_(check_managers)


def prompt(sim: Simulation) -> None:
    """Simulate short scripts without faults, in which every result must follow its cause at once."""
    world(sim, pods_fail=0.0, gates={features.FAILURE_EVIDENCE: True})
    sim.server.missing.add(wakeups.VOLCANO)
    sim.finally_(wakeups.play)
    sim.finally_(check_managers)


def prompt_and_gated(sim: Simulation) -> None:
    """Simulate such scripts with managers whose other feature gates are enabled."""
    gates = {features.TRAIN_JOB_STATUS: True, features.TTL_AFTER_FINISHED: True}
    cluster = world(sim, pods_fail=0.0, gates=gates, ttl=wakeups.DEFAULT_TTL)
    sim.finally_(lambda sim: wakeups.play(sim, wakeups.GATED, cluster.trainers))
    sim.finally_(check_managers)


def reporting(sim: Simulation) -> None:
    """Simulate trainers that report progress, with faults and users who change and replace TrainJobs."""
    cluster = world(sim, gates={features.TRAIN_JOB_STATUS: True, features.EXECUTION_ATTEMPTS: True})
    Writes(sim)
    users, administrators, trainers = Users(3), Administrators(cluster), cluster.trainers
    stories = Stories(users, cluster.nodes)
    assert trainers is not None
    users.register(sim)
    administrators.register(sim)
    sim.actor(install_authority)
    sim.actor(trainers.run, "trainers")

    async def check(sim: Simulation) -> None:
        rng = random.Random(f"{sim.seed}/reporting")
        await administrators.install(sim)
        await install_authority(sim)  # users may have deleted the Secret
        cluster.nodes.hold_until = math.inf
        # Reports that failed before must not stand in the way of reports for another TrainJob of the same name.
        names = ["reporter", *users.pick_names(rng, 3)]
        for name in names:
            await stories.remove(sim, rng, name)
            await users.clear(sim, rng)
            await users.create(sim, rng, name, "plain", suspend=False)
        await anyio.sleep(60.0)
        pairs = [(pod, train_job_of(sim, pod)) for pod in sim.server.objects(Pod)]
        found = {job["metadata"]["name"]: (pod, job) for pod, job in pairs if job}
        assert "reporter" in found, "a TrainJob has no pods"
        for pod, job in [found[name] for name in names if name in found] * 4:
            code = await trainers.report(pod, job, rng)
            assert code == HTTPStatus.OK, f"a report is not accepted in a calm cluster: {code}"

    sim.finally_(check)
    sim.finally_(check_managers)


def prompt_and_keeping(sim: Simulation) -> None:
    """Simulate such scripts with managers of the second generation."""
    world(sim, pods_fail=0.0, version=V2_3)
    sim.finally_(lambda sim: wakeups.play(sim, wakeups.SECOND))
    sim.finally_(check_managers)


test_a_train_job_is_served_whatever_happens = simtest.simulate(seeds=6)(scenario)
test_a_train_job_is_served_in_a_short_life = simtest.simulate(
    seeds=24, first=1000, minutes=3.0, faults=6.0, actions=0.35
)(scenario)
test_a_train_job_follows_a_change_between_two_reconciles = simtest.simulate(
    seeds=5, first=2000, minutes=0.5, faults=0.0, actions=0.0
)(moves)
test_a_train_job_keeps_its_runtime = simtest.simulate(
    seeds=10, first=3000, minutes=4.0, faults=5.0, actions=0.6
)(keeping)
test_reports_of_trainers_are_kept = simtest.simulate(
    seeds=6, first=7000, minutes=3.0, faults=6.0, actions=0.6
)(reporting)
test_no_wake_up_is_lost = simtest.simulate(seeds=2, first=4000, minutes=0.5, faults=0.0, actions=0.0)(prompt)
test_no_wake_up_is_lost_with_feature_gates = simtest.simulate(
    seeds=2, first=6000, minutes=0.5, faults=0.0, actions=0.0
)(prompt_and_gated)
test_no_wake_up_is_lost_in_the_second_generation = simtest.simulate(
    seeds=2, first=5000, minutes=0.5, faults=0.0, actions=0.0
)(prompt_and_keeping)


def test_a_result_that_comes_late_is_noticed() -> None:
    async def play(sim: Simulation) -> None:
        table = sim.server.table(JobSet)
        with sim.server.watches.delays.during(lambda watch: 15.0 if watch.table is table else 0.0):
            await wakeups.play(sim, [wakeups.Wakeups.end])

    def late(sim: Simulation) -> None:
        world(sim, pods_fail=0.0)
        sim.finally_(play)

    outcome = simtest.run(late, 1, steps=[], minutes=0.5, faults=0.0)
    assert str(outcome.failure) == "nothing follows an event within 10 s: the completion of a JobSet"


def test_what_a_new_process_makes_good_is_noticed() -> None:
    async def lose(sim: Simulation) -> None:
        await users.create(sim, random.Random(1), "job", "mpi", suspend=True)
        await anyio.sleep(30.0)
        table, (child,) = sim.server.table(ConfigMap), sim.server.objects(ConfigMap)
        with sim.server.watches.delays.during(lambda watch: 600.0 if watch.table is table else 0.0):
            await sim.client().delete(ConfigMap.from_dict(child))
            await renew(sim)

    def prepare(sim: Simulation) -> None:
        administrators = Administrators(world(sim, pods_fail=0.0))
        sim.finally_(administrators.install)
        sim.finally_(lose)

    users = Users(1)
    failure = str(simtest.run(prepare, 1, steps=[], minutes=0.5, faults=0.0).failure)
    assert failure.startswith("a new process writes in a cluster at rest: ")
    assert "PATCH /api/v1/namespaces/default/configmaps/job-mpi-hostfile" in failure
