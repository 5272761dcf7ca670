# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The pod grouper in a simulated cluster."""

from __future__ import annotations

import controller_runtime as ctrl
import pytest
from controller_runtime import simtest
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.cache import Options as CacheOptions
from controller_runtime.manager import ControllerDefaults
from controller_runtime.simtest import Simulation

from pkg import podgrouper
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.apis.scheduling import v1beta1
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.podgrouper.podgroup import OLDEST, Rules
from testkit.sim.grouperadministrators import GrouperAdministrators
from testkit.sim.grouperwakeups import GROUPED, GrouperWakeups
from testkit.sim.groups import Groups
from testkit.sim.laggingoperators import LaggingOperators
from testkit.sim.managers import Writes, check_managers
from testkit.sim.racingusers import RacingUsers
from testkit.sim.workloads import NOTEBOOK_CRD, RAY_CRD, Workloads

pytestmark = pytest.mark.timeout(
    1800
)  # simulations compute for minutes, and several times as long on a busy machine


def scenario(sim: Simulation) -> None:
    """Simulate users, operators and two pod groupers, with faults."""
    world(sim, OLDEST)


def newest(sim: Simulation) -> None:
    """Simulate the same as :func:`scenario`, with the groups of KAI-Scheduler v0.17."""
    world(sim, Rules.V0_17)


def world(sim: Simulation, release: Rules) -> None:
    """Set up users, operators, two pod groupers and the rules for a release of KAI-Scheduler."""
    settings = podgrouper.Settings(rules=release)

    async def setup(mgr: ctrl.Manager) -> None:
        """Set up the manager as its program does, without servers."""
        await podgrouper.setup(mgr, settings)

    sim.serve(Pod, Job, JobSet, TrainJob, PodGroup, PriorityClass, ConfigMap)
    sim.server.serve_crds([RAY_CRD, NOTEBOOK_CRD])
    groups = Groups(sim, release)
    Writes(sim)
    workloads = Workloads()
    workloads.register(sim)
    RacingUsers(sim, workloads)
    groups.resized = GrouperAdministrators(sim).resized
    LaggingOperators(sim, workloads)
    cache = CacheOptions(by_object=podgrouper.cache_options(settings))
    only = ControllerDefaults(skip_name_validation=True)
    sim.manager(setup, options=simtest.options(cache=cache, controller=only))
    sim.on_change(groups.see)
    sim.finally_(groups.check)
    sim.finally_(lambda sim: workloads.act_calmly(sim, groups.problem))
    sim.finally_(groups.check)
    sim.finally_(check_managers)


def prompt(sim: Simulation) -> None:
    """Simulate short scripts without faults, in which every result must follow its cause at once."""
    settings = podgrouper.Settings(namespace_labels=GROUPED)
    workloads = Workloads(pods_end=0.0)
    wakeups = GrouperWakeups(sim, workloads)

    async def setup(mgr: ctrl.Manager) -> None:
        await podgrouper.setup(mgr, settings, published=wakeups.published)

    sim.serve(Pod, Job, JobSet, TrainJob, PodGroup, PriorityClass, ConfigMap, v1beta1.PodGroup)
    sim.server.serve_crds([RAY_CRD, NOTEBOOK_CRD])
    sim.actor(workloads.run, "operators")
    cache = CacheOptions(by_object=podgrouper.cache_options(settings))
    only = ControllerDefaults(skip_name_validation=True)
    sim.manager(setup, options=simtest.options(cache=cache, controller=only))
    sim.finally_(wakeups.play)
    sim.finally_(check_managers)


test_a_pod_is_in_the_group_of_its_owners = simtest.simulate(seeds=6)(scenario)
test_a_pod_is_in_the_group_of_its_owners_in_a_short_life = simtest.simulate(
    seeds=24, first=1000, minutes=3.0, faults=6.0, actions=0.35
)(scenario)
test_a_pod_is_in_the_group_of_its_owners_by_the_rules_of_v0_17 = simtest.simulate(
    seeds=12, first=2000, minutes=3.0, faults=6.0, actions=0.35
)(newest)
test_no_wake_up_is_lost = simtest.simulate(seeds=2, first=4000, minutes=0.5, faults=0.0, actions=0.0)(prompt)
