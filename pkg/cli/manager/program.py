# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager's program, from a command line to an exit code.

What an operator did wrong is one line on stderr and no traceback: exit code 2 for the command line, 1 for
everything else.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import anyio

from pkg import config, controller, ctrl, metrics, webhooks
from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.machinery.errors import StatusError, UnauthorizedError
from pkg.apis.scheduling.v1 import PriorityClass
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime
from pkg.ctrl import healthz, log, rest
from pkg.ctrl.client import ReadThrough
from pkg.ctrl.manager import ManagerError, UnreachableError
from pkg.runtime import Runtime, core

from . import ending, flags, goflags, lean
from .certificates import ManagedWebhooks, certificates_for
from .flags import Flags

DISTRIBUTION: Final = "trainer-controller-manager"

_BAD_USAGE: Final = 2
_FAILED: Final = 1
_REACH: Final = 10.0
_RETRY: Final = 1.0

_REFERRED_TO: Final = (ClusterTrainingRuntime, TrainingRuntime, PriorityClass)
"""Kinds that people create together with what refers to them by name."""

_EXPECTED: Final = (
    config.ConfigurationError,
    rest.RestError,
    StatusError,
    ManagerError,
    OSError,
)
"""What the world can do to us: told in one line, without a traceback."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the manager until it is told to stop; return the exit code."""
    try:
        parsed = flags.parse(sys.argv[1:] if arguments is None else arguments)
    except goflags.HelpRequested:
        sys.stdout.write(flags.usage())
        return 0
    except goflags.FlagError as error:
        return _complain(error, _BAD_USAGE)
    if parsed.version:
        sys.stdout.write(f"{flags.PROGRAM} {_version()}\n")
        return 0
    log.configure(parsed.log)
    use_uvloop = importlib.util.find_spec("uvloop") is not None
    bound = ending.Bound(_report_unended)
    try:
        cfg = config.load(parsed.config)
        anyio.run(_run_bounded, parsed, cfg, bound, backend_options={"use_uvloop": use_uvloop})
    except (*_EXPECTED, ExceptionGroup) as error:
        expected = _expected(error)
        if expected is None:
            raise
        return _complain(expected, _FAILED)
    except KeyboardInterrupt:
        return _FAILED
    finally:
        bound.lift()
    return 0


async def _run_bounded(parsed: Flags, cfg: Configuration, bound: ending.Bound) -> None:
    with bound.within():
        await run(parsed, cfg)


def _report_unended(error: BaseException | None) -> int:
    if error is not None:
        _complain(_expected(error) or error, _FAILED)
    return _complain(RuntimeError("code in a thread did not end; the process ends without it"), _FAILED)


async def run(parsed: Flags, cfg: Configuration) -> None:
    """Run the manager until a signal ends it.

    Raises:
        RestError: no cluster is configured, or it cannot be reached.
        ManagerError: a part of the manager failed, or leadership was lost.
    """
    connection = config.rest_config(cfg, await rest.load_config(parsed.kubeconfig or None))
    await reach(connection)
    log.logger_from("setup").info("Starting", version=_version(), configFile=parsed.config)
    mgr = ctrl.Manager(connection, options(parsed, cfg))
    await setup(mgr, parsed, cfg)
    mgr.add(lean.Collector(mgr.cache.ready))
    gc.disable()
    try:
        async with ctrl.setup_signal_handler() as stop:
            await mgr.start(stop)
    finally:
        gc.enable()


async def reach(connection: rest.Config, *, timeout: float = _REACH) -> None:
    """Return once the API server has let us in; before that, nothing is worth a line in the log.

    Raises:
        UnreachableError: it did not answer within ``timeout`` seconds.
        UnauthorizedError: it does not know who we are.
    """
    async with rest.Transport(connection) as transport:
        deadline = anyio.current_time() + timeout
        while True:
            left = max(_RETRY, deadline - anyio.current_time())
            try:
                response = await transport.send(rest.Request("GET", "/version", timeout=left))
                await response.close()
            except rest.TransportError as error:
                if anyio.current_time() + _RETRY >= deadline:
                    raise UnreachableError(f"the API server cannot be reached: {error}") from error
                await anyio.sleep(_RETRY)
                continue
            if response.status == HTTPStatus.UNAUTHORIZED:
                raise UnauthorizedError(f"the API server does not accept the credentials: {connection.host}")
            return


def groups_pods(parsed: Flags, cfg: Configuration) -> bool:
    """Tell whether the pod grouper runs: the Configuration or the command line names it, and none excludes it."""
    named = cfg.pod_grouper.enable or flags.POD_GROUPER in parsed.controllers
    return bool(named) and parsed.enabled(flags.POD_GROUPER)


def options(parsed: Flags, cfg: Configuration) -> ctrl.Options:
    """Return the manager's options, with what the cache shall hold for the pod grouper where that runs."""
    made = config.manager_options(cfg)
    if not groups_pods(parsed, cfg):
        return made
    from pkg import podgrouper  # fifty modules, for those only who group pods

    held = podgrouper.cache_options(podgrouper.settings(cfg))
    return dataclasses.replace(made, cache=dataclasses.replace(made.cache, by_object=held))


async def setup(mgr: ctrl.Manager, parsed: Flags, cfg: Configuration) -> None:
    """Register controllers, webhooks and checks with a manager that has not started.

    Where only the pod grouper runs, no webhook is served and no kind of Trainer's is watched.
    """
    mgr.add(metrics.DegradedKindsExporter(mgr.cache.degraded))
    mgr.add_healthz_check("healthz", healthz.ping)
    if groups_pods(parsed, cfg):
        from pkg import podgrouper

        await podgrouper.setup(mgr, podgrouper.settings(cfg))
    if parsed.controllers == (flags.POD_GROUPER,):
        return
    reader = ReadThrough(mgr.client, mgr.api_reader, _REFERRED_TO)
    runtimes = await core.new(reader, mgr.field_indexer)
    controller.setup_controllers(mgr, runtimes, enabled=parsed.enabled)
    if parsed.webhooks:
        _serve_webhooks(mgr, cfg, runtimes)


def _serve_webhooks(mgr: ctrl.Manager, cfg: Configuration, runtimes: Mapping[str, Runtime]) -> None:
    """Serve the webhooks, with certificates of the manager's own or of a directory; readiness waits for them."""
    if not cfg.cert_management.enable:
        webhooks.setup(mgr, runtimes)
        mgr.add_readyz_check("readyz", mgr.webhook_server.started_checker())
        return
    certificates = certificates_for(mgr, cfg.cert_management)

    def register() -> None:
        mgr.webhook_server.use(certificates)
        webhooks.setup(mgr, runtimes)

    def started() -> None:  # asking for the server any earlier would start it
        mgr.webhook_server.started_checker()()

    managed = ManagedWebhooks(certificates, register, started)
    mgr.add(managed)
    mgr.add_readyz_check("readyz", managed.check)


def _expected(error: BaseException) -> BaseException | None:
    """Return the first error an operator can mend; None when something else went wrong as well."""
    if not isinstance(error, BaseExceptionGroup):
        return error if isinstance(error, _EXPECTED) else None
    found = [_expected(each) for each in error.exceptions]
    return found[0] if all(found) else None


def _complain(error: BaseException, code: int) -> int:
    text = " ".join(str(error).split()) or type(error).__name__
    sys.stderr.write(f"{flags.PROGRAM}: {text}\n")
    return code


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
