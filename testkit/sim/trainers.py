# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Trainers, which report progress from their pods to the status servers of the managers.

As behind a Service, a report goes to a random manager that is ready, and is handled in the process of that manager. The
handler, the check of tokens and the search for the owners of pods are those of the status server. Its writes and its
reads each have a connection of their own, as in the program, and faults affect them. The server around the handler is
not simulated, because it has sockets and TLS.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from contextvars import Context, copy_context
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import anyio
import controller_runtime as ctrl
from controller_runtime.apis.batch.v1 import Job
from controller_runtime.apis.core.v1 import Namespace, Pod, Secret
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import LiveClient
from controller_runtime.machinery.meta import format_time
from controller_runtime.serving import HTTPRequest
from controller_runtime.simtest import CURRENT_PROCESS, Event, Simulation

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.statusserver import (
    Issuer,
    PodOwners,
    ProjectedServiceAccountTokenAuthorizer,
    StatusHandler,
    status_url,
    token_audience,
)
from pkg.util import cert
from testkit.sim.managers import ready
from testkit.sim.objects import by_uid, controller, is_busy, is_deleted, refusals_expected
from testkit.tokenissuer import Authority

Document = dict[str, Any]
_PATIENCE: Final = 15.0
"""Seconds that a trainer waits for an answer, which is longer than a status server takes."""
_OF_STRANGERS: Final = 0.2
"""The fraction of the reports that pods of other TrainJobs send."""
_KEY: Final = "key"


class _Server(NamedTuple):
    manager: ctrl.Manager
    context: Context
    handler: StatusHandler


class Trainers:
    """The trainers of one simulated cluster, and the rules for their reports."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._authority = Authority()
        self._authority.add(_KEY)
        self._servers: dict[str, _Server] = {}
        self._progress = 0
        self.answers: list[int] = []
        """The codes of the answers."""
        self._stored: set[int] = set()
        """The progress in each report that was stored."""
        sim.on_change(self._see)

    def serve(self, mgr: ctrl.Manager) -> None:
        """Set up the status server of a manager, in whose process this is called."""
        process = CURRENT_PROCESS.get()
        assert process is not None
        writes, reads = (LiveClient(self._sim.connect(process.name), mgr.rest_mapper) for _ in range(2))
        owners = PodOwners(reads, mgr.client)
        authorizer = ProjectedServiceAccountTokenAuthorizer(
            Issuer(self._authority.transport), owners.require, _seconds
        )
        handler = StatusHandler(writes.status, authorizer.authorize)
        self._servers[process.name] = _Server(mgr, copy_context(), handler)

    async def run(self, sim: Simulation) -> None:
        """Report progress from random pods, as long as users and faults act."""
        rng = random.Random(f"{sim.seed}/trainers")
        while is_busy(sim):
            await anyio.sleep(rng.uniform(1.0, 10.0))
            if not (pods := [pod for pod in sim.server.objects(Pod) if not is_deleted(pod)]):
                continue
            pod = rng.choice(pods)
            jobs = [train_job_of(sim, each) for each in (rng.choice(pods), pod)]
            job = jobs[0] if rng.random() < _OF_STRANGERS else jobs[1]
            if job is not None:
                await self.report(pod, job, rng)

    async def report(self, pod: Document, job: Document, rng: random.Random) -> int | None:
        """Report progress of a TrainJob from a pod; return the code of the answer, or None if there is no answer.

        Raises:
            AssertionError: a report of a stranger was accepted, or an accepted report was not stored.
        """
        sim, metadata = self._sim, job["metadata"]
        is_own = (train_job_of(sim, pod) or {}).get("metadata", {}).get("uid") == metadata["uid"]
        names = {name for name, manager in ready(sim)}
        servers = [
            each
            for name, each in sorted(self._servers.items())
            if name in names and sim.managers.get(name) is each.manager
        ]
        if not servers:
            return None
        self._progress += 1
        update = {"progressPercentage": self._progress, "lastUpdatedTime": format_time(datetime.now(UTC))}
        request = HTTPRequest(
            method="POST",
            path=status_url(metadata["namespace"], metadata["name"]),
            headers={"Authorization": f"Bearer {self._token(pod, job)}"},
            body=json.dumps({"trainerStatus": update}).encode(),
        )
        server = rng.choice(servers)
        task = asyncio.get_running_loop().create_task(server.handler(request), context=server.context.copy())
        done, _ = await asyncio.wait([task], timeout=_PATIENCE)
        if not done:  # the process was killed or paused
            task.cancel()
            return None
        code = int(task.result().status)
        self.answers.append(code)
        sim.record("trainer", f"POST {request.path} -> {code}")
        if code == HTTPStatus.OK:
            name = metadata["name"]
            assert is_own, f"a report of a stranger was accepted: {name}"
            # An earlier report, to which no answer came, may have replaced it meanwhile.
            assert self._progress in self._stored, f"an accepted report was not stored: {name}"
        return code

    def _see(self, event: Event) -> None:
        """Note the reports that are stored, and check that no other writer removes the report of a TrainJob."""
        if event.table.properties.gvk != TrainJob.gvk or event.type == "DELETED":
            return
        reported, now = (
            None if each is None else each.get("status", {}).get("trainerStatus")
            for each in (event.before, event.document)
        )
        assert not reported or now, f"a report was removed: {event.document['metadata']['name']}"
        if now:
            self._stored.add(now["progressPercentage"])

    def _token(self, pod: Document, job: Document) -> str:
        """Return the token that Kubernetes projects into a pod, for the audience of a TrainJob."""
        own, metadata = pod["metadata"], job["metadata"]
        claims = {
            "aud": [token_audience(metadata["namespace"], metadata["name"])],
            "exp": _seconds() + 3600.0,
            "kubernetes.io": {
                "namespace": own["namespace"],
                "pod": {"name": own["name"], "uid": own["uid"]},
            },
        }
        return self._authority.sign(_KEY, claims)


def train_job_of(sim: Simulation, pod: Document) -> Document | None:
    """Return the TrainJob to which a pod belongs, or None."""
    found: Document | None = pod
    for kind in (Job, JobSet, TrainJob):
        owner = controller(found) if found is not None else None
        found = by_uid(sim, kind, owner["uid"]) if owner is not None else None
    return found


def authority(text: str = "first") -> Secret:
    """Return the Secret with the certificate authority of the managers' servers."""
    data = {"ca.crt": base64.b64encode(text.encode()).decode()}
    metadata = {"namespace": cert.operator_namespace(), "name": "kubeflow-trainer-webhook-cert"}
    return Secret.from_dict({"metadata": metadata, "data": data})


async def install_authority(sim: Simulation) -> None:
    """Create the Secret with the certificate authority, and its namespace, if they do not exist."""
    for wanted in (Namespace(metadata=ObjectMeta(name=cert.operator_namespace())), authority()):
        with refusals_expected():
            await sim.client("admin").create(wanted)


def _seconds() -> float:
    """Return the time of the simulation."""
    return datetime.now(UTC).timestamp()
