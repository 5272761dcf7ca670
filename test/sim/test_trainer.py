# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The whole manager in a simulated cluster."""

from __future__ import annotations

import random

import controller_runtime as ctrl
from controller_runtime import client, controller, simtest
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, LimitRange, Pod, PodTemplate, Secret, Service
from controller_runtime.apis.node.v1 import RuntimeClass
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.simtest import Simulation
from controller_runtime.simtest.loop import CURRENT
from sim_administrators import Administrators
from sim_calm import Calm
from sim_end import End
from sim_holders import Holders
from sim_jobset import review_job_set
from sim_managers import Writes, check_managers, revoke
from sim_overtakers import Overtakers
from sim_past import Past
from sim_rules import Rules
from sim_stories import Stories
from sim_users import Users
from sim_webhook import configurations, review_secret, tune
from sim_world import Cluster

from pkg import controller as controllers
from pkg import webhooks
from pkg.apis.config.v1alpha1 import defaulted
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.runtime import core

_NAMES = 6
"""How many names of TrainJobs a whole life has."""


def world(sim: Simulation, pods_fail: float = 0.1, *, alone: str = "") -> Cluster:
    """Set up Kubernetes' controllers, Kueue and two managers.

    With a profile, ``alone`` runs the controllers of its own, without leader election, in ``manager-1``; ``manager-0``
    only serves webhooks.
    """
    sim.serve(TrainJob, TrainingRuntime, ClusterTrainingRuntime, JobSet, Job, Pod, ConfigMap, Secret, Service)
    sim.serve(PodGroup, PriorityClass, RuntimeClass, LimitRange, PodTemplate)
    cluster = Cluster(pods_fail)

    async def setup(mgr: ctrl.Manager) -> None:
        """Set a manager up as its program does, without servers."""
        referred = (ClusterTrainingRuntime, TrainingRuntime, PriorityClass)
        reader = client.ReadThrough(mgr.client, mgr.api_reader, referred)
        cfg, process, options = defaulted(), CURRENT.get(), controller.Options(skip_name_validation=True)
        cfg.compatibility_version = alone or cfg.compatibility_version
        store = mgr.api_reader if alone else None
        runtimes = await core.new(reader, mgr.field_indexer, cfg=cfg, store=store)
        if not alone or (process is not None and process.name == "manager-1"):
            controllers.setup_controllers(mgr, runtimes, options, cfg=cfg)
        webhooks.setup(mgr, runtimes, cfg)

    sim.server.admit[JobSet.gvk] = [review_job_set]
    sim.server.admit[Secret.gvk] = [review_secret]
    sim.server.admit[PodGroup.gvk] = sim.server.admit[ConfigMap.gvk] = [tune]
    sim.admission(*configurations())
    sim.actor(cluster.run, "cluster")
    sim.manager(setup, options=simtest.options(leader_election=not alone))
    return cluster


def scenario(sim: Simulation) -> None:
    """Users, administrators, Kubernetes' controllers, Kueue and two managers, with faults."""
    cluster = world(sim)
    past = Past(sim)
    Writes(sim)
    users, administrators = Users(max(2, round(_NAMES * sim.actions))), Administrators(cluster)
    users.register(sim)
    Overtakers(sim, users)
    administrators.register(sim)
    Holders(sim, administrators.lost)
    sim.action(revoke, times=0.5)
    rules, end = Rules(sim, past, administrators.lost), End(users, administrators, past)
    sim.on_change(rules.see)
    sim.on_change(lambda event: end.see(sim, event))
    sim.finally_(end.check)
    sim.finally_(Calm(users, administrators, end, cluster.nodes).check)
    sim.finally_(check_managers)


def moves(sim: Simulation) -> None:
    """Users who suspend, change and resume running TrainJobs within one reconcile, or while no manager leads."""
    cluster = world(sim, pods_fail=0.0)
    past, users, administrators = Past(sim), Users(_NAMES), Administrators(cluster)
    rules, end = Rules(sim, past, administrators.lost), End(users, administrators, past)
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


test_a_train_job_is_served_whatever_happens = simtest.simulate(seeds=10)(scenario)
test_a_train_job_is_served_in_a_short_life = simtest.simulate(
    seeds=70, first=1000, minutes=3.0, faults=6.0, actions=0.35
)(scenario)
test_a_train_job_follows_a_change_between_two_reconciles = simtest.simulate(
    seeds=5, first=2000, minutes=0.5, faults=0.0, actions=0.0
)(moves)
