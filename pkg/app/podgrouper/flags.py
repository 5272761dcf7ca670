# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The flags of KAI-Scheduler's pod grouper, v0.13.0 to v0.17.0, and their conversion to a Configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from controller_runtime import log as log_options

from pkg.apis.config.v1alpha1 import Configuration, set_defaults
from pkg.app import goflags
from pkg.app.flags import TRACING, CommonFlags, zap_flags, zap_options
from pkg.app.goflags import Flag
from pkg.constants import kai
from pkg.podgrouper import Rules

PROGRAM: Final = "podgrouper"
LEASE: Final = "54dff599.kai.scheduler"
"""The lease of KAI's own pod grouper: while one of the two programs holds the lease, the other program waits."""

_OFF: Final = "0"


class Flags(CommonFlags, frozen=True, kw_only=True):
    """A parsed command line."""

    configuration: Configuration


def parse(arguments: Sequence[str]) -> Flags:
    """Parse a command line.

    Raises:
        goflags.FlagError: the command line is invalid. The text is one line, which names the flag.
        goflags.HelpRequested: ``-h`` or ``--help`` was given.
    """
    values = goflags.parse(FLAGS, arguments)
    return Flags(
        configuration=_configuration(values),
        kubeconfig=values["kubeconfig"],
        version=values["version"],
        log=zap_options(values),
        tracing=values["tracing"],
    )


def usage() -> str:
    """Return the help text."""
    return goflags.usage(PROGRAM, FLAGS)


def _configuration(values: dict[str, Any]) -> Configuration:
    """Return the Configuration of a manager that runs only the pod grouper, with the defaults of upstream's program."""
    priorities = {
        "name": values["default-priorities-configmap-name"],
        "namespace": values["default-priorities-configmap-namespace"],
    }
    grouper = {
        "enable": True,
        "nodePoolLabelKey": values["nodepool-label-key"],
        "queueLabelKey": values["queue-label-key"],
        "schedulerName": values["scheduler-name"],
        "maxConcurrentReconciles": max(1, values["max-concurrent-reconciles"]),
        "searchLegacyPodGroups": values["search-legacy-pg"],
        "knativeGangSchedule": values["knative-gang-schedule"],
        "rules": values["rules"],
        "podLabelSelector": values["pod-label-selector"],
        "namespaceLabelSelector": values["namespace-label-selector"],
        **({"defaultPrioritiesConfigMap": priorities} if all(priorities.values()) else {}),
    }
    cfg = Configuration.from_dict(
        {
            "metrics": {"bindAddress": values["metrics-bind-address"] or ":8080", "secureServing": False},
            "health": {"healthProbeBindAddress": values["health-probe-bind-address"] or _OFF},
            "leaderElection": {"leaderElect": values["leader-elect"], "resourceName": LEASE},
            "certManagement": {"enable": False},
            "clientConnection": {"qps": values["qps"], "burst": max(0, values["burst"])},
            "podGrouper": grouper,
        }
    )
    set_defaults(cfg)
    # A key that is set to an empty string stays empty: upstream then sets no such label.
    cfg.pod_grouper.node_pool_label_key = values["nodepool-label-key"]
    cfg.pod_grouper.queue_label_key = values["queue-label-key"]
    return cfg


def _integer(text: str) -> int:
    """Parse an integer in any base, as Go does: for example ``0x10``, ``010`` or ``1_000``."""
    sign, digits = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdecimal()
    try:
        value = int(sign + digits, 8 if octal else 0)
    except ValueError:
        raise ValueError("parse error") from None
    if abs(value) >= 2**31:
        raise ValueError("value out of range")
    return value


def _rules(text: str) -> str:
    if text not in ("auto", *Rules):
        raise ValueError("must be auto, v0.13 or v0.17")
    return text


def _labels(text: str) -> dict[str, str]:
    """Parse labels in the form ``a=b,c=d``. As upstream, parts without an equals sign are ignored."""
    pairs = (pair.partition("=") for pair in text.split(","))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


FLAGS: Final = (
    Flag(
        "metrics-bind-address",
        str,
        "Address at which metrics are served over HTTP; 0 disables them.",
        default=":8080",
    ),
    Flag(
        "health-probe-bind-address",
        str,
        "Address at which probes are served; 0 disables them.",
        default=":8081",
    ),
    Flag(
        "leader-elect",
        goflags.boolean,
        "Elect a leader, so that one of several replicas groups pods.",
        default=False,
    ),
    Flag(
        "nodepool-label-key",
        str,
        "Label that names a node pool, on pods and owners.",
        default=kai.NODE_POOL_LABEL_KEY,
    ),
    Flag("qps", _integer, "Maximum number of requests to the API server per second.", default=50),
    Flag("burst", _integer, "Maximum number of requests to the API server in a burst.", default=300),
    Flag(
        "max-concurrent-reconciles",
        _integer,
        "Maximum number of pods that are reconciled at the same time.",
        default=kai.MAX_CONCURRENT_RECONCILES,
    ),
    Flag(
        "search-legacy-pg",
        goflags.boolean,
        "Use an existing pod group with the name that an older release gave it.",
        default=True,
    ),
    Flag(
        "knative-gang-schedule",
        goflags.boolean,
        "Group the pods of a Knative revision together.",
        default=True,
    ),
    Flag(
        "generic-karta-fallback",
        goflags.boolean,
        "Accepted, but has no effect: Karta objects are not read.",
        default=True,
    ),
    Flag(
        "rules",
        _rules,
        "Release whose grouping rules apply: v0.13, v0.17, or auto for the release of the installed PodGroup CRD.",
        default="auto",
    ),
    Flag(
        "scheduler-name",
        str,
        "Scheduler whose pods are grouped; the pods of other schedulers are ignored.",
        default=kai.SCHEDULER_NAME,
    ),
    Flag(
        "queue-label-key", str, "Label that names a queue, on pods and owners.", default=kai.QUEUE_LABEL_KEY
    ),
    Flag(
        "default-priorities-configmap-name",
        str,
        "ConfigMap with the default priority class and preemptibility of each kind.",
    ),
    Flag("default-priorities-configmap-namespace", str, "Namespace of the ConfigMap with the defaults."),
    Flag(
        "pod-label-selector",
        _labels,
        "Group only pods with these labels, as key=value,key=value.",
        default={},
    ),
    Flag(
        "namespace-label-selector",
        _labels,
        "Group only pods in namespaces with these labels, as key=value,key=value.",
        default={},
    ),
    Flag("kubeconfig", str, "Kubeconfig file. Only needed outside a cluster."),
    Flag("version", goflags.boolean, "Print the version and exit.", default=False),
    TRACING,
    *zap_flags(development=True, time_encoding=log_options.TimeEncoding.ISO8601),
)
