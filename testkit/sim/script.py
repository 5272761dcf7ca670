# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Scripts of users' actions for simulated and real clusters, and the state that both must reach."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import anyio
import msgspec
from controller_runtime import simtest
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import ConfigMap, Pod, Secret
from controller_runtime.client import MERGE, LiveClient, raw_patch
from controller_runtime.machinery import Object
from controller_runtime.simtest import Simulation

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainingRuntime, TrainJob
from testkit.sim import runtimes as sim_runtimes
from testkit.sim.cluster import HELD, phase
from testkit.sim.objects import PROPAGATIONS, is_deleted, is_suspended, refusals_expected

Document = dict[str, Any]
KINDS: Sequence[type[Object]] = (TrainJob, JobSet, Job, Pod, ConfigMap, Secret)
_NAMES = ("first", "second")
_RUNTIMES = ("plain", "held", "mpi", "initialized")
_MANAGER = "trainer.kubeflow.org/trainjob-controller"
_UNEQUAL = frozenset(
    {"uid", "resourceVersion", "creationTimestamp", "managedFields", "lastTransitionTime", "time"}
)
_STATUS = frozenset({"succeeded", "status"})
"""Fields that identify the items of lists in a status, because the order of these items is not determined."""


class Action(NamedTuple):
    """One action of a user on a TrainJob."""

    verb: str
    name: str
    spec: Document
    propagation: Any = None


def script(seed: int, length: int = 10) -> list[Action]:
    """Return the script of a seed: creations, edits, suspensions and deletions of two TrainJobs."""
    rng = random.Random(f"{seed}/script")
    actions = [_create(rng, name, 0) for name in _NAMES]
    for number in range(1, length - len(_NAMES) + 1):
        name = rng.choice(_NAMES)
        trainer = {"trainer": {"image": f"image:{number}", "numNodes": rng.choice([1, 2])}}
        actions.append(
            rng.choice(
                [
                    Action("patch", name, trainer),
                    Action("patch", name, {"suspend": True}),
                    Action("patch", name, {"suspend": True}),
                    Action("patch", name, {"suspend": False}),
                    Action("patch", name, {"suspend": False, **trainer}),
                    Action("delete", name, {}, rng.choice(PROPAGATIONS[:2])),
                    _create(rng, name, number),
                ]
            )
        )
    return actions


def moves(seed: int) -> list[list[Action]]:
    """Return groups of actions.

    The actions of a group follow each other so fast that a manager may miss a suspension.
    """
    rng = random.Random(f"{seed}/moves")
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime"}

    def create(number: int) -> Action:
        runtime = {**reference, "name": rng.choice(["held", "mpi", "initialized", "gang"])}
        spec = {"runtimeRef": runtime, "trainer": {"image": f"image:{number}"}, "suspend": False}
        return Action("create", "first", spec)

    bursts = [[create(0)]]
    for number in range(1, 11):
        trainer = {"trainer": {"image": f"image:{number}", "numNodes": rng.choice([1, 2])}}
        suspend, edit = Action("patch", "first", {"suspend": True}), Action("patch", "first", trainer)
        resume = Action("patch", "first", {"suspend": False})
        bursts.append(
            rng.choice(
                [
                    [suspend, edit, resume],
                    [Action("patch", "first", {"suspend": True, **trainer}), resume],
                    [suspend, Action("patch", "first", {"suspend": False, **trainer})],
                    [suspend, resume],
                    [suspend],
                    [edit],
                    [resume],
                    [Action("delete", "first", {}, "Background"), create(number)],
                ]
            )
        )
    return bursts


def _create(rng: random.Random, name: str, number: int) -> Action:
    reference = {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "TrainingRuntime",
        "name": rng.choice(_RUNTIMES),
    }
    trainer = {"image": f"image:{number}", "numNodes": rng.choice([1, 2])}
    suspend = rng.random() < 0.5
    spec = {"runtimeRef": reference, "trainer": trainer, "suspend": suspend, "managedBy": _MANAGER}
    return Action("create", name, spec)


def runtimes(namespace: str) -> list[TrainingRuntime]:
    """Return the runtimes that scripts refer to. The pods of ``held`` do not end."""
    made = []
    for name in _RUNTIMES:
        spec = msgspec.json.decode(
            msgspec.json.encode(sim_runtimes.SPECS["plain" if name == "held" else name])
        )
        if name == "held":
            template = spec["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
            template["metadata"] = {"annotations": {HELD: "1h"}}
        metadata = {"name": name, "namespace": namespace}
        made.append(TrainingRuntime.from_dict({"metadata": metadata, "spec": spec}))
    return made


async def perform(client: LiveClient, namespace: str, action: Action) -> None:
    """Perform one action; the script goes on even if the action is refused."""
    metadata = {"namespace": namespace, "name": action.name}
    target = TrainJob.from_dict({"metadata": metadata})
    with refusals_expected():
        match action.verb:
            case "create":
                await client.create(TrainJob.from_dict({"metadata": metadata, "spec": action.spec}))
            case "delete":
                await client.delete(target, propagation=action.propagation)
            case "patch":
                await client.patch(target, raw_patch(MERGE, msgspec.json.encode({"spec": action.spec})))


def state(found: Mapping[type[Object], Sequence[Document]]) -> Document:
    """Return the part of a namespace's objects that does not depend on time, names of pods and uids."""
    pods: dict[str, int] = {}
    for pod in found[Pod]:
        if not is_deleted(pod) and phase(pod) in ("Pending", "Running", ""):
            labels = pod["metadata"].get("labels") or {}
            name = str(labels.get("jobset.sigs.k8s.io/jobset-name", ""))
            pods[name] = pods.get(name, 0) + 1
    return {
        "trainJobs": {_name(each): _train_job(each) for each in found[TrainJob]},
        "jobSets": {_name(each): _job_set(each) for each in found[JobSet]},
        "jobs": {_name(each): [is_suspended(each), _conditions(each)] for each in found[Job]},
        "pods": pods,
        "configMaps": {
            _name(each): each.get("data") for each in found[ConfigMap] if _name(each) != "kube-root-ca.crt"
        },
        "secrets": sorted(_name(each) for each in found[Secret]),
    }


def _train_job(job: Document) -> Document:
    counts = sorted(
        [each["name"], each.get("succeeded"), each.get("suspended")]
        for each in job.get("status", {}).get("jobsStatus") or ()
    )
    return {"suspend": is_suspended(job), "conditions": _conditions(job), "jobs": counts}


def _job_set(job_set: Document) -> Document:
    jobs = []
    for each in job_set["spec"]["replicatedJobs"]:
        spec = each["template"]["spec"]
        pod = spec["template"]["spec"]
        containers = [[item["name"], item["image"], item.get("env")] for item in pod["containers"]]
        jobs.append([each["name"], spec.get("parallelism"), spec.get("completions"), containers])
    return {"suspend": is_suspended(job_set), "conditions": _conditions(job_set), "jobs": jobs}


def _conditions(document: Document) -> list[str]:
    """Return the types of the true conditions, except types that depend on the release of Kubernetes."""
    conditions = document.get("status", {}).get("conditions") or []
    known = ("Complete", "Completed", "Failed", "Suspended")
    return sorted(each["type"] for each in conditions if each["status"] == "True" and each["type"] in known)


def _name(document: Document) -> str:
    return str(document["metadata"]["name"])


def equal_part(value: Any) -> Any:
    """Return an object without uid, resourceVersion and times, and with the lists in its status sorted."""
    if isinstance(value, dict):
        return {key: equal_part(each) for key, each in value.items() if key not in _UNEQUAL}
    if isinstance(value, list):
        found = [equal_part(each) for each in value]
        in_status = all(isinstance(each, dict) and not _STATUS.isdisjoint(each) for each in found)
        return sorted(found, key=msgspec.json.encode) if in_status else found
    return value


def simulated(scenario: Any, seed: int) -> list[Document]:
    """Return the states of a simulated cluster after each action of a script, without faults."""
    states: list[Document] = []

    async def play(sim: Simulation) -> None:
        for runtime in runtimes("default"):
            await sim.client().create(runtime)
        for action in script(seed):
            await perform(sim.client(), "default", action)
            await anyio.sleep(120.0)
            states.append(state({kind: sim.server.objects(kind) for kind in KINDS}))

    def without_users(sim: Simulation) -> None:
        scenario(sim)
        sim.finally_(play)

    outcome = simtest.run(without_users, seed, steps=[], minutes=0.5, faults=0.0)
    if outcome.failure is not None:
        raise outcome.failure
    return states
