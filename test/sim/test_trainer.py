# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The whole manager in a simulated cluster."""

from __future__ import annotations

import controller_runtime as ctrl
from controller_runtime import client, controller, simtest
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, LimitRange, Pod, PodTemplate, Secret, Service
from controller_runtime.apis.node.v1 import RuntimeClass
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.simtest import Simulation
from sim_rules import Orphans, Specs, settled
from sim_world import Cluster, Users, refuse_changes_of_job_sets

from pkg import controller as controllers
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.runtime import core

PLAIN = {
    "metadata": {"name": "plain"},
    "spec": {
        "mlPolicy": {"numNodes": 1},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {
                                "labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
                            },
                            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "i"}]}}},
                        },
                    }
                ]
            }
        },
    },
}


async def setup(mgr: ctrl.Manager) -> None:
    """Set the manager up as its program does, without servers."""
    referred = (ClusterTrainingRuntime, TrainingRuntime, PriorityClass)
    reader = client.ReadThrough(mgr.client, mgr.api_reader, referred)
    runtimes = await core.new(reader, mgr.field_indexer)
    controllers.setup_controllers(mgr, runtimes, controller.Options(skip_name_validation=True))


async def runtime_is_there(sim: Simulation) -> None:
    """An administrator installs the runtime."""
    await sim.client("admin").create(ClusterTrainingRuntime.from_dict(PLAIN))


def scenario(sim: Simulation) -> None:
    """Users, Kubernetes' controllers and two managers, with faults."""
    sim.serve(TrainJob, TrainingRuntime, ClusterTrainingRuntime, JobSet, Job, Pod, ConfigMap, Secret, Service)
    sim.serve(PodGroup, PriorityClass, RuntimeClass, LimitRange, PodTemplate)
    sim.server.admit[JobSet.gvk] = [refuse_changes_of_job_sets]
    sim.actor(runtime_is_there)
    sim.actor(Cluster().run, "cluster")
    sim.manager(setup)
    Users().register(sim)
    specs, orphans = Specs(), Orphans()
    sim.on_change(lambda event: specs.see(sim, event))
    sim.on_change(orphans.see)
    sim.finally_(settled)


test_a_train_job_is_served_whatever_happens = simtest.simulate(seeds=20)(scenario)
