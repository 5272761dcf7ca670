# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m trainerctl.localcluster.processes``: the kubelet of nodes whose pods run as local processes."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import controller_runtime as ctrl
from controller_runtime import cache, client, controller, log, recorder, source
from controller_runtime.apis.authentication.v1 import BoundObjectReference, TokenRequestSpec
from controller_runtime.apis.core.v1 import Pod, ServiceAccountTokenProjection
from controller_runtime.envtest import HOST

from trainerctl.localcluster import recycling
from trainerctl.localcluster.access import new_token
from trainerctl.localcluster.podlogs.removed import RemovedPods
from trainerctl.localcluster.podlogs.server import LogServer, mutual_tls
from trainerctl.localcluster.processes import images, process
from trainerctl.localcluster.processes.execserver import ProcessExec
from trainerctl.localcluster.processes.kubelet import Kubelet
from trainerctl.localcluster.processes.logserver import ProcessLogs
from trainerctl.localcluster.processes.names import Hosts
from trainerctl.localcluster.processes.nodes import Nodes
from trainerctl.localcluster.processes.settings import Settings
from trainerctl.localcluster.processes.volumes import remove_data

_WORKERS = 8
_NORMAL = frozenset({"Killing", "PortReplaced"})
"""Events with these reasons are not warnings."""
_log = log.logger_from("processes")


async def _new_token(client_: client.Client, pod: Pod, projection: ServiceAccountTokenProjection) -> str:
    """Return a new token of the pod's service account, bound to the pod."""
    spec = TokenRequestSpec(
        audiences=[projection.audience] if projection.audience else [],
        expiration_seconds=projection.expiration_seconds or 3600,
        bound_object_ref=BoundObjectReference(
            api_version="v1", kind="Pod", name=pod.name, uid=pod.metadata.uid
        ),
    )
    return await new_token(client_, pod.namespace, pod.spec.service_account_name or "default", spec)


class _Runnable:
    """A function that runs with the manager."""

    def __init__(self, function: Callable[[], Awaitable[None]]) -> None:
        self._function = function

    async def start(self) -> None:
        await self._function()

    def need_leader_election(self) -> bool:
        """Return False, because only one kubelet runs."""
        return False


def main() -> None:
    """Run until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m trainerctl.localcluster.processes")
    for flag in ("kubeconfig", "certificate", "key", "client-ca", "directory", "removed"):
        parser.add_argument(f"--{flag}", required=True)
    parser.add_argument("--image", action="append", default=[], type=images.parse)
    parser.add_argument("--port", type=int, required=True)
    asyncio.run(_run(parser.parse_args()))


async def _run(parsed: argparse.Namespace) -> None:
    log.configure()
    pods = cache.ByObject(fields="spec.nodeName!=")
    options = ctrl.Options(metrics_bind_address="0", cache=cache.Options(by_object={Pod: pods}))
    config = await ctrl.load_config(parsed.kubeconfig)
    mgr = ctrl.Manager(config, options)
    events = mgr.event_recorder_for("kubelet")
    if problem := await process.mount_problem():
        _log.info("Containers have no mounts and no host names of their own on this machine", reason=problem)
    directory = Path(parsed.directory)
    settings = Settings(
        directory=directory,
        images=images.Images(directory / "programs", dict(parsed.image)),
        hosts=Hosts(directory / "hosts"),
        reader=mgr.api_reader,
        new_token=partial(_new_token, mgr.api_reader),
        record=lambda pod, reason, message: events.event(
            pod, recorder.NORMAL if reason in _NORMAL else recorder.WARNING, reason, message
        ),
        server=urlsplit(config.address).netloc or config.address,
        isolated=not problem,
    )
    await _start(mgr, settings, parsed)


async def _start(mgr: ctrl.Manager, settings: Settings, parsed: argparse.Namespace) -> None:
    tls = mutual_tls(parsed.certificate, parsed.key, parsed.client_ca)
    nodes = Nodes(mgr.api_reader)
    removed = RemovedPods(Path(parsed.removed))
    kubelet = Kubelet(mgr.client, settings, nodes.__contains__, removed)
    logs = ProcessLogs(mgr.client, settings, kubelet.runner)
    (
        ctrl.new_controller_managed_by(mgr)
        .named("processes")
        .for_(Pod)
        .watches_raw_source(source.Func(kubelet.feed))
        .with_options(controller.Options(max_concurrent_reconciles=_WORKERS))
        .complete(kubelet)
    )
    mgr.add(nodes)
    server = LogServer(logs.log, ProcessExec(kubelet.runner).answer)
    mgr.add(_Runnable(partial(server.serve, HOST, parsed.port, tls)))
    mgr.add(_Runnable(partial(recycling.recycle, mgr.api_reader, partial(remove_data, settings.claims))))
    mgr.add(_Runnable(partial(removed.follow, mgr.api_reader)))
    async with mgr, ctrl.setup_signal_handler() as stop, kubelet.running():
        await nodes.heartbeat()
        existing = await mgr.api_reader.list(Pod)
        kubelet.forget_others({pod.metadata.uid or "" for pod in existing})
        await mgr.start(stop)


if __name__ == "__main__":
    main()
