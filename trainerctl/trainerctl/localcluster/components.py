# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The command lines of all components except etcd and kube-apiserver."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

import pkg
from controller_runtime.envtest import (
    HOST,
    Authority,
    Binary,
    Component,
    ControlPlane,
    Probe,
    free_ports,
    private_directory,
    write_private,
)
from controller_runtime.machinery import JSON, yaml

from trainerctl.localcluster import kai, manifests
from trainerctl.localcluster.names import REMOVED
from trainerctl.localcluster.options import Options

MANAGER: Final = "trainer-controller-manager"
JOBSET_CONTROLLER: Final = "jobset-controller"
POD_LOGS: Final = "pod-logs"
PROCESSES: Final = "process-kubelet"
KUBELET_CLIENT: Final = "kubelet-client"
"""The name of the certificate that the API server presents to nodes."""
FRONT_PROXY: Final = "front-proxy-client"
"""The name of the certificate that the API server presents to the servers of other APIs, such as Kueue's visibility."""
STAGES: Final = Path(__file__).parent / "stages.yaml"

# The controllers that workloads, services, namespaces, claims and simulated nodes need; the others would only use
# memory.
_CONTROLLERS: Final = (
    "job-controller",
    "cronjob-controller",
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "serviceaccount-controller",
    "namespace-controller",
    "garbage-collector-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "taint-eviction-controller",
    "resourcequota-controller",
    "ttl-after-finished-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "root-ca-certificate-publisher-controller",
)
_ENDPOINTS: Final = "endpointslice-controller"
"""Creates the endpoints of simulated pods. If pods run as local processes, it is not started, because it rejects their
loopback addresses.
"""

_GANGS: Final = {
    "schedulerName": "default-scheduler",
    "plugins": {
        "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
    },
    "pluginConfig": [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 10}}],
}


@dataclass(frozen=True)
class Ports:
    """The loopback port of each component."""

    controller_manager: int
    scheduler: int
    kwok: int
    jobset_webhook: int
    jobset_health: int
    manager_webhook: int
    manager_health: int
    manager_metrics: int
    manager_status: int
    kai_metrics: int
    kai_binder: int
    pod_logs: int
    processes: int
    prometheus: int

    @classmethod
    def choose(cls) -> Ports:
        return cls(*free_ports(len(fields(cls))))


@dataclass(frozen=True)
class Parts:
    """Makes the components of one cluster. Their configuration and kubeconfigs are written into ``directory``."""

    directory: Path
    plane: ControlPlane
    binaries: Mapping[str, Binary]
    ports: Ports
    options: Options = field(default_factory=Options)

    @property
    def webhook_certificates(self) -> Path:
        """The folder with ``tls.crt`` and ``tls.key`` for webhook servers."""
        return self.directory / "webhook"

    @property
    def _kubelet_clients(self) -> Path:
        """The certificate of the authority that nodes trust.

        This authority signs only the certificate that the API server presents to nodes.
        """
        return self.plane.pki / f"{KUBELET_CLIENT}-ca.crt"

    def kubeconfig(self, component: str) -> Path:
        return self.directory / f"{component}.kubeconfig"

    def write_certificates(self) -> None:
        """Write the kubeconfigs, the webhooks' serving certificate and the API server's certificate for nodes."""
        for component, user, groups in (
            ("admin", "admin", ["system:masters"]),
            ("kube-controller-manager", "system:kube-controller-manager", []),
            ("kube-scheduler", "system:kube-scheduler", []),
            ("kwok", "kwok", []),
            (POD_LOGS, POD_LOGS, []),
            (PROCESSES, PROCESSES, []),
            *((((kai.SCHEDULER, kai.USER, []),)) if self.options.kai else ()),
        ):
            config = self.plane.kubeconfig_for(user, groups)
            write_private(self.kubeconfig(component), yaml.dump(config))
        serving = self.plane.authority.server("webhooks", [HOST, "localhost", manifests.TRAINER_SERVER])
        serving.write(private_directory(self.webhook_certificates))
        # The log servers do not authorize requests. Therefore they accept only the API server's certificate, which a
        # separate authority signs.
        clients = Authority.create("kubelet-client-ca")
        write_private(self._kubelet_clients, clients.certificate)
        clients.client("kube-apiserver").write(self.plane.pki, KUBELET_CLIENT)
        # Whoever has a certificate of this authority can act as any user on the servers of other APIs.
        proxies = Authority.create("front-proxy-ca")
        write_private(self.plane.pki / f"{FRONT_PROXY}-ca.crt", proxies.certificate)
        proxies.client(FRONT_PROXY).write(self.plane.pki, FRONT_PROXY)

    def controller_manager(self) -> Component:
        endpoints = [] if self.options.run_processes else [_ENDPOINTS]
        flags = {
            **self._kubernetes("kube-controller-manager", self.ports.controller_manager),
            "service-account-private-key-file": self.plane.pki / "sa.key",
            "root-ca-file": self.plane.authority_file,
            "use-service-account-credentials": "true",
            # The default of 20 requests a second is for a server with thousands of users. With it, a hundred TrainJobs
            # have to wait for a minute.
            "kube-api-qps": 200,
            "kube-api-burst": 400,
            "controllers": ",".join((*_CONTROLLERS, *endpoints, *self.options.gang_controllers)),
        }
        return self._go("kube-controller-manager", flags, self._tls(self.ports.controller_manager, "healthz"))

    def scheduler(self) -> Component:
        flags = self._kubernetes("kube-scheduler", self.ports.scheduler)
        return self._go("kube-scheduler", flags, self._tls(self.ports.scheduler, "readyz"))

    def coscheduler(self) -> Component:
        """Return the scheduler of scheduler-plugins. It binds either all pods of a PodGroup or none."""
        name = "coscheduling-scheduler"
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(self.kubeconfig("kube-scheduler"))},
            "profiles": [_GANGS],
        }
        flags = self._kubernetes("kube-scheduler", self.ports.scheduler)
        del flags["kubeconfig"], flags["leader-elect"]
        flags["config"] = self._write(name, config)
        return self._go(name, flags, self._tls(self.ports.scheduler, "readyz"))

    def kwok(self) -> Component:
        """Return kwok, which simulates the nodes."""
        flags = {
            "kubeconfig": self.kubeconfig("kwok"),
            "config": STAGES,
            "manage-all-nodes": "true",
            "node-lease-duration-seconds": 40,
            "server-address": f"{HOST}:{self.ports.kwok}",
            "cidr": "10.244.0.0/16",
        }
        return self._go("kwok", flags, Probe(f"http://{HOST}:{self.ports.kwok}/healthz"))

    def pod_logs(self) -> Component:
        """Return the log server of simulated pods. It answers only the API server."""
        flags = [f"--removed={self.directory / REMOVED}"]
        return self._node(POD_LOGS, "trainerctl.localcluster.podlogs", self.ports.pod_logs, flags)

    def processes(self) -> Component:
        """Return the kubelet of the nodes whose pods run as local processes. It also serves the logs of these pods."""
        flags = [
            f"--directory={self.directory / 'processes'}",
            f"--removed={self.directory / REMOVED}",
            *(f"--image={each}" for each in self.options.images),
        ]
        return self._node(PROCESSES, "trainerctl.localcluster.processes", self.ports.processes, flags)

    def nodes(self) -> list[Component]:
        """Return the programs that act as the kubelets of the nodes."""
        return [self.processes()] if self.options.run_processes else [self.kwok(), self.pod_logs()]

    def _node(self, name: str, module: str, port: int, more: Sequence[str]) -> Component:
        """Return a program that the API server calls as a kubelet."""
        flags = {
            "kubeconfig": self.kubeconfig(name),
            "certificate": self.webhook_certificates / "tls.crt",
            "key": self.webhook_certificates / "tls.key",
            "client-ca": self._kubelet_clients,
            "port": port,
        }
        argv = [module, *(f"--{flag}={value}" for flag, value in flags.items()), *more]
        pair = (self.plane.pki / f"{KUBELET_CLIENT}.crt", self.plane.pki / f"{KUBELET_CLIENT}.key")
        probe = Probe(f"https://{HOST}:{port}/healthz", self.plane.authority_file, pair)
        return _python(name, argv, probe)

    def jobset(self) -> Component:
        health = f"{HOST}:{self.ports.jobset_health}"
        config = {
            **self._configuration("config.jobset.x-k8s.io/v1alpha1", self.ports.jobset_webhook, health),
            "internalCertManagement": {"enable": False},
            "metrics": {"bindAddress": "0"},
        }
        name = JOBSET_CONTROLLER
        flags = {"config": self._write(name, config), "kubeconfig": self.kubeconfig(name)}
        return self._go(name, flags, Probe(f"http://{health}/readyz"))

    def manager(self) -> Component:
        """Return our manager. It runs with this interpreter, from this installation."""
        health = f"{HOST}:{self.ports.manager_health}"
        config = {
            **self._configuration("config.trainer.kubeflow.org/v1alpha1", self.ports.manager_webhook, health),
            "certManagement": {"enable": False},
            "metrics": {"bindAddress": f"{HOST}:{self.ports.manager_metrics}", "secureServing": False},
            "podGrouper": {"enable": self.options.kai is not None},
            "statusServer": {"port": self.ports.manager_status},
            "featureGates": self.options.gates,
            "compatibilityVersion": self.options.compatibility_version,
        }
        argv = [
            "pkg.app",
            f"--config={self._write(MANAGER, config)}",
            f"--kubeconfig={self.kubeconfig(MANAGER)}",
        ]
        return _python(MANAGER, argv, Probe(f"http://{health}/readyz"))

    def _kubernetes(self, name: str, port: int) -> dict[str, JSON]:
        """Return the flags that Kubernetes' own components share."""
        kubeconfig = self.kubeconfig(name)
        return {
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "bind-address": HOST,
            "secure-port": port,
            "tls-cert-file": self.plane.pki / "server.crt",
            "tls-private-key-file": self.plane.pki / "server.key",
            "leader-elect": "false",
            **({"feature-gates": gates} if (gates := self.options.feature_gates) else {}),
        }

    def _configuration(self, api_version: str, webhook_port: int, health: str) -> dict[str, JSON]:
        """Return the fields that the configurations of both controllers share."""
        certificates = str(self.webhook_certificates)
        return {
            "apiVersion": api_version,
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "webhook": {"host": HOST, "port": webhook_port, "certDir": certificates},
            "health": {"healthProbeBindAddress": health},
        }

    def _tls(self, port: int, path: str) -> Probe:
        return Probe(f"https://{HOST}:{port}/{path}", self.plane.authority_file)

    def _write(self, name: str, config: dict[str, JSON]) -> Path:
        return write_private(self.directory / f"{name}.yaml", yaml.dump(config))

    def _go(self, name: str, flags: Mapping[str, object], ready: Probe) -> Component:
        argv = [str(self.binaries[name].path), *(f"--{flag}={value}" for flag, value in flags.items())]
        return Component(name, argv, ready)


def api_server_flags(directory: Path) -> list[str]:
    """Return the flags with which the API server in ``directory`` reads logs from nodes and serves APIServices."""
    pki = directory / "pki"
    return [
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / f'{KUBELET_CLIENT}.crt'}",
        f"--kubelet-client-key={pki / f'{KUBELET_CLIENT}.key'}",
        f"--requestheader-client-ca-file={pki / f'{FRONT_PROXY}-ca.crt'}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki / f'{FRONT_PROXY}.crt'}",
        f"--proxy-client-key-file={pki / f'{FRONT_PROXY}.key'}",
    ]


def _python(name: str, argv: Sequence[str], ready: Probe) -> Component:
    """Return a component that runs a Python module with this interpreter. ``argv`` starts with the module's name."""
    homes = dict.fromkeys(map(str, (Path(__file__).parents[2], Path(pkg.__file__).parents[1])))
    path = os.pathsep.join(filter(None, [*homes, os.environ.get("PYTHONPATH", "")]))
    return Component(name, [sys.executable, "-P", "-m", *argv], ready, {"PYTHONPATH": path})
