# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Environment: a real API server for the duration of a test run."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from controller_runtime.apis.authentication.v1 import TokenRequest, TokenRequestSpec
from controller_runtime.apis.core.v1 import ServiceAccount
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import LiveClient
from controller_runtime.envtest.binaries import Binaries
from controller_runtime.envtest.controlplane import ETCD, ControlPlane, kube_tool, release_of
from controller_runtime.envtest.errors import EnvtestError
from controller_runtime.envtest.files import private_directory, try_lock
from controller_runtime.envtest.manifests import (
    WEBHOOK_KINDS,
    Manifest,
    WebhookServing,
    apply_manifests,
    install_crds,
    kind_of,
    point_at,
    point_conversion_at,
    prepare_serving,
    read_manifests,
    select_namespaces,
    wait_established,
)
from controller_runtime.envtest.process import PidFiles, Supervisor
from controller_runtime.envtest.progress import PlainProgress, Progress
from controller_runtime.machinery import JSON, Object
from controller_runtime.machinery.errors import AlreadyExistsError
from controller_runtime.rest import Config, RESTMapper, StaticToken, Transport, config_from_dict, load_config

EXISTING_VARIABLE: Final = "USE_EXISTING_CLUSTER"
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 a private directory, mode 0700, is created in it
_LOCK: Final = "owner.lock"
"""The file in a directory of an environment that the environment's process has locked."""
_KEEP_LOGS: Final = 86_400.0


class Environment:
    """etcd and kube-apiserver. They run during the body of ``async with``, or between `start` and `stop`.

    ::

        async with Environment(crds=[Path("config/crd/json")]) as environment:
            async with Transport(environment.config) as transport: ...

    No controllers run: a deleted namespace stays, a Job creates no pods, and garbage is not collected. Start one
    environment per test run and give each test its own namespace. On Linux, etcd and kube-apiserver end with this
    process even if it is killed. The next environment removes the files that a killed environment left on disk.

    ``version`` is a pinned release of Kubernetes, such as ``1.37``. If it is empty, ``ENVTEST_K8S_VERSION`` is used or,
    if that is not set, the library's default. Binaries in ``KUBEBUILDER_ASSETS`` are used regardless of their version.

    With ``etcd_gateway``, tests can send JSON requests to etcd. The URL is ``control_plane.etcd_url``, and the TLS
    settings are ``control_plane.etcd_tls``.

    With ``USE_EXISTING_CLUSTER=true`` no process is started: the cluster of the current kubeconfig is used, and
    only the CRDs and webhooks are installed.
    """

    def __init__(
        self,
        *,
        crds: Sequence[Path | Manifest] = (),
        webhooks: Sequence[Path | Manifest] = (),
        api_server_flags: Sequence[str] = (),
        etcd_gateway: bool = False,
        version: str = "",
        progress: Progress | None = None,
    ) -> None:
        self._binaries = Binaries(progress=progress or PlainProgress(sys.stderr))
        self._crds = crds
        self._webhooks = webhooks
        self._serving: WebhookServing | None = None
        self._serving_directory: tempfile.TemporaryDirectory[str] | None = None
        self._flags = api_server_flags
        self._etcd_gateway = etcd_gateway
        self._version = version
        self._config: Config | None = None
        self._control_plane: ControlPlane | None = None
        self._supervisor: Supervisor | None = None
        self._directories: list[Path] = []
        self._locks: list[int] = []

    @property
    def uses_existing_cluster(self) -> bool:
        """True if the environment uses an existing cluster instead of its own."""
        return os.environ.get(EXISTING_VARIABLE, "").lower() in {"true", "1", "yes"}

    @property
    def config(self) -> Config:
        """The client configuration of a cluster administrator."""
        if self._config is None:
            raise EnvtestError("the environment is not running")
        return self._config

    @property
    def directory(self) -> Path:
        """The directory of this environment's logs and certificates."""
        if not self._directories:
            raise EnvtestError("the environment is not running")
        return self._directories[0]

    @property
    def control_plane(self) -> ControlPlane:
        """The control plane. Raises EnvtestError if the environment is not running or uses an existing cluster."""
        if self._control_plane is None:
            why = (
                "the environment uses an existing cluster"
                if self.uses_existing_cluster
                else "the environment is not running"
            )
            raise EnvtestError(f"no control plane: {why}")
        return self._control_plane

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> dict[str, JSON]:
        """Return a kubeconfig for ``user``, who is a member of ``groups``."""
        return self.control_plane.kubeconfig_for(user, groups)

    async def add_user(self, user: str, groups: Sequence[str] = ()) -> Config:
        """Return the client configuration of ``user``; see `kubeconfig_for`."""
        return await config_from_dict(self.kubeconfig_for(user, groups))

    async def add_service_account(
        self, namespace: str, name: str, *, expiration_seconds: int | None = None
    ) -> Config:
        """Return a client configuration with a new token of a service account. Create the account if it is missing."""
        account = ServiceAccount(metadata=ObjectMeta(namespace=namespace, name=name))
        wanted = TokenRequest(spec=TokenRequestSpec(expiration_seconds=expiration_seconds))
        async with Transport(self.config) as transport:
            client = LiveClient(transport, RESTMapper(transport))
            with suppress(AlreadyExistsError):
                await client.create(account)
            issued = await client.subresource("token").create(account, wanted)
        ours = self.config.tls
        tls = dataclasses.replace(ours, cert=None, key=None) if ours is not None else None
        credentials = StaticToken(issued.status.token or "")
        return dataclasses.replace(self.config, tls=tls, credentials=credentials, namespace=namespace)

    @property
    def webhook_serving(self) -> WebhookServing:
        """The address and certificate at which the API server calls the installed webhooks.

        Pass them to your manager, which serves all webhooks on this one port. Nothing listens there until the
        manager starts.
        """
        if self._serving is None:
            self._serving_directory = tempfile.TemporaryDirectory(prefix="ctrl-envtest-webhooks-")
            self._serving = prepare_serving(Path(self._serving_directory.name))
        return self._serving

    async def install_webhooks(
        self, *sources: Path | Manifest, prefix: str = "", namespaces: Sequence[str] = ()
    ) -> WebhookServing:
        """Install webhook configurations from files, folders or objects.

        The API server calls the webhooks at :attr:`webhook_serving`; it begins after a short delay. ``prefix`` is put
        before the names of the configurations. With ``namespaces``, the webhooks are only called for objects in these
        namespaces, and for these Namespace objects themselves.

        Raises:
            ValueError: the sources contain no webhook configuration.
        """
        manifests = [manifest for manifest in read_manifests(*sources) if manifest["kind"] in WEBHOOK_KINDS]
        if not manifests:
            raise ValueError("the sources contain no webhook configuration")
        if namespaces:
            manifests = [select_namespaces(manifest, namespaces) for manifest in manifests]
        serving = self.webhook_serving
        pointed = [
            point_at(
                manifest, serving.url, serving.certificate, name=prefix + str(manifest["metadata"]["name"])
            )
            for manifest in manifests
        ]
        async with Transport(self.config) as transport:
            client = LiveClient(transport, RESTMapper(transport))
            await apply_manifests(client, pointed)
        return serving

    async def start(self, *, timeout: float = 60) -> Self:
        """Start the control plane and install the CRDs; return when both are ready.

        Raises:
            EnvtestError: the release of Kubernetes is not pinned.
            ToolError: a binary is missing and cannot be built.
            ComponentError: a component failed. The message contains the path of its log, which is kept.
        """
        if self.uses_existing_cluster:
            self._config = await load_config()
        else:
            release = release_of(self._version, os.environ)
            binaries = await self._binaries.locate(ETCD, kube_tool("kube-apiserver", release))
            self._directories, self._locks = make_directories()
            state, data = self._directories[0], private_directory(self._directories[-1] / "etcd")
            self._supervisor = Supervisor(state, tied=True)
            self._control_plane = ControlPlane(
                state,
                binaries,
                self._supervisor,
                data=data,
                service_accounts=False,
                flags=self._flags,
                etcd_gateway=self._etcd_gateway,
            )
            try:
                await self._control_plane.start(timeout=timeout)
            except BaseException:
                self.kill(keep_logs=True)
                raise
            self._config = await config_from_dict(self.kubeconfig_for("admin", ["system:masters"]))
        try:
            await self.install_crds(*self._crds)
            if self._webhooks:
                await self.install_webhooks(*self._webhooks)
        except BaseException:
            self.kill(keep_logs=True)
            raise
        return self

    async def install_crds(
        self,
        *sources: Path | Manifest,
        convertible: Collection[type[Object]] = (),
        timeout: float = 30,
    ) -> None:
        """Install CRDs from files, folders or objects, and return when they are served.

        CRDs of the kinds in ``convertible`` convert their versions at :attr:`webhook_serving`. Until your manager
        listens there, requests fail if they ask for another version than the stored one.
        """
        if not sources:
            return
        kinds = {(kind.gvk.group, kind.gvk.kind) for kind in convertible}
        manifests = [
            point_conversion_at(manifest, self.webhook_serving) if kind_of(manifest) in kinds else manifest
            for manifest in read_manifests(*sources)
        ]
        async with Transport(self.config) as transport:
            client = LiveClient(transport, RESTMapper(transport))
            names = await install_crds(client, manifests)
            await wait_established(client, names, timeout=timeout)

    def check(self) -> None:
        """Raise the error of a component that has exited."""
        if self._supervisor is not None:
            self._supervisor.check()

    def kill(self, *, keep_logs: bool = False) -> None:
        """Kill the processes and remove their files. A second call has no effect."""
        if self._supervisor is not None:
            self._supervisor.kill()
        for directory in self._directories[1 if keep_logs else 0 :]:
            shutil.rmtree(directory, ignore_errors=True)
        for descriptor in self._locks:
            os.close(descriptor)
        if self._serving_directory is not None:
            self._serving_directory.cleanup()
        self._serving = self._serving_directory = None
        self._supervisor = self._control_plane = self._config = None
        self._directories, self._locks = [], []

    async def stop(self) -> None:
        """Stop the environment.

        Raises:
            ComponentError: a component had ended before. The message contains the path of its log, which is kept.
        """
        try:
            self.check()
        except EnvtestError:
            self.kill(keep_logs=True)
            raise
        self.kill()

    async def __aenter__(self) -> Self:
        """Start."""
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        """Stop; a component that exited by itself is reported even if the body failed because of it."""
        await self.stop()


def make_directories() -> tuple[list[Path], list[int]]:
    """Create a directory for certificates and logs, and another one in memory for etcd's data.

    Without a file system in memory, the first directory is used for the data, too. Old directories are removed first:
    those of environments whose process has ended. Return the directories and the descriptors of their locks, which the
    caller closes when the environment ends.
    """
    roots = [_root(Path(tempfile.gettempdir()))]
    if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK):
        roots.append(_root(_MEMORY))
    for root in roots:
        sweep(root, keep=_KEEP_LOGS if root is roots[0] else 60)
    made: list[Path] = []
    locks: list[int] = []
    for root in roots:
        made.append(Path(tempfile.mkdtemp(prefix="run-", dir=root)))
        locks.append(os.open(made[-1] / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if not try_lock(locks[-1]):
            raise EnvtestError(f"{made[-1]} is locked by another process")
    return made, locks


def sweep(root: Path, *, keep: float) -> None:
    """Clean up after environments whose process has exited: end their components and remove their directories.

    The process of a running environment has locked a file in its directory. The system releases the lock when the
    process ends, however it ends, so this is also right for processes of other containers that share the directory. A
    directory stays for ``keep`` seconds after its last change: a user may want to read its logs, and a new owner may
    not have locked it yet.
    """
    for directory in root.glob("run-*"):
        with suppress(FileNotFoundError):  # another process has removed it meanwhile
            is_old = time.time() - directory.stat().st_mtime > keep
            if not is_old and not (directory / _LOCK).exists():
                continue
            descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if try_lock(descriptor):
                    PidFiles(directory / "pids").end_leftovers()
                    if is_old:
                        shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(descriptor)


def _root(base: Path) -> Path:
    return private_directory(base / f"controller-runtime-envtest-{os.getuid()}")
