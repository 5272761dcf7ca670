# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager's flags, the values that each flag accepts, and the parsed command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from controller_runtime import log as log_options

from pkg import features

from . import goflags
from .goflags import Flag
from .goflags import FlagError as FlagError
from .goflags import HelpRequested as HelpRequested

PROGRAM: Final = "trainer-controller-manager"

POD_GROUPER: Final = "podgrouper"
CONTROLLERS: Final = ("trainjob", "trainingruntime", "clustertrainingruntime", POD_GROUPER)
"""The valid names of controllers in ``--controllers``."""

_TIME_ENCODING: Final = log_options.TimeEncoding.RFC3339NANO


class CommonFlags(msgspec.Struct, frozen=True, kw_only=True):
    """The flags that every program has."""

    kubeconfig: str = ""
    version: bool = False
    tracing: bool = False
    log: log_options.Options = msgspec.field(
        default_factory=lambda: log_options.Options(time_encoding=_TIME_ENCODING, caller=True)
    )


class Flags(CommonFlags, frozen=True, kw_only=True):
    """A parsed command line."""

    config: str = ""
    enable_http2: bool = False
    controllers: tuple[str, ...] = ("*",)
    webhooks: bool = True
    feature_gates: Mapping[str, bool] = {}

    def enabled(self, controller: str) -> bool:
        """Return True if ``controller`` is enabled.

        The first word of ``--controllers`` that names the controller decides. If no word names the controller, it is
        enabled if ``*`` is in the list.
        """
        for word in self.controllers:
            if word in (controller, f"-{controller}"):
                return word == controller
        return "*" in self.controllers


def parse(arguments: Sequence[str]) -> Flags:
    """Parse a command line.

    Raises:
        goflags.FlagError: the command line is invalid. The text is one line, which names the flag.
        goflags.HelpRequested: ``-h`` or ``--help`` was given.
    """
    values = goflags.parse(FLAGS, arguments)
    parsed = Flags(
        config=values["config"],
        kubeconfig=values["kubeconfig"],
        enable_http2=values["enable-http2"],
        controllers=values["controllers"],
        webhooks=values["webhooks"],
        feature_gates=values["feature-gates"],
        version=values["version"],
        tracing=values["tracing"],
        log=zap_options(values, caller=True),
    )
    if not parsed.webhooks and not any(map(parsed.enabled, CONTROLLERS)):
        raise goflags.FlagError("--controllers and --webhooks disable everything")
    return parsed


def usage() -> str:
    """Return the help text."""
    return goflags.usage(PROGRAM, FLAGS)


def _controllers(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    for word in words:
        if word != "*" and word.removeprefix("-") not in CONTROLLERS:
            raise ValueError(f'unknown controller "{word}"; the controllers are {", ".join(CONTROLLERS)}')
    return words


def feature_gates(text: str) -> dict[str, bool]:
    """Return the feature gates of comma-separated pairs such as ``TrainJobStatus=true``.

    Raises:
        ValueError: a pair has another form, or a gate is not known.
    """
    gates: dict[str, bool] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = item.partition("=")
        if not name.strip() or not equals:
            raise ValueError(f'missing bool value for "{item}"')
        try:
            gates[name.strip()] = goflags.boolean(value.strip())
        except ValueError:
            raise ValueError(f'"{name.strip()}" must be true or false, not "{value.strip()}"') from None
    features.resolve(gates)
    return gates


def zap_flags(
    *, development: bool = False, time_encoding: log_options.TimeEncoding = _TIME_ENCODING
) -> tuple[Flag, ...]:
    """Return the log flags that every program with a manager has. The arguments are the flags' defaults."""
    return (
        Flag(
            "zap-devel",
            goflags.boolean,
            "Logging for development: console encoder, debug level.",
            default=development,
        ),
        Flag(
            "zap-encoder",
            log_options.parse_encoder,
            "Log encoding: json or console. The default is json, or console with --zap-devel.",
            default=None,
        ),
        Flag(
            "zap-log-level",
            log_options.parse_level,
            "Log level: debug, info, error, panic, or a number above 0 for more detail. The default is info, "
            "or debug with --zap-devel.",
            default=None,
        ),
        Flag(
            "zap-stacktrace-level",
            log_options.parse_stacktrace_level,
            "Minimum level for stack traces: info, error, panic. The default is error, or warn with --zap-devel.",
            default=None,
        ),
        Flag(
            "zap-time-encoding",
            log_options.parse_time_encoding,
            "Time encoding: epoch, millis, nano, iso8601, rfc3339, rfc3339nano.",
            default=time_encoding,
        ),
    )


def zap_options(values: Mapping[str, Any], *, caller: bool = False) -> log_options.Options:
    """Convert the values of :func:`zap_flags` to log options. With ``caller``, log lines contain a source position."""
    return log_options.Options(
        development=values["zap-devel"],
        encoder=values["zap-encoder"],
        verbosity=values["zap-log-level"],
        stacktrace_level=values["zap-stacktrace-level"],
        time_encoding=values["zap-time-encoding"],
        caller=caller,
    )


TRACING: Final = Flag(
    "tracing",
    goflags.boolean,
    "Export OpenTelemetry spans of reconciles and their requests, one trace for each object, as configured by the "
    "OTEL_* environment variables. Requires the package extra otel.",
    default=False,
)
FLAGS: Final = (
    Flag("config", str, "File with the Configuration. The default is an empty Configuration."),
    Flag(
        "kubeconfig",
        str,
        "Kubeconfig file. The default is the environment variable KUBECONFIG. If it is unset, a pod uses its service "
        "account, and any other process ~/.kube/config.",
    ),
    Flag(
        "enable-http2",
        goflags.boolean,
        "Accepted, but has no effect: HTTP/2 is not served.",
        default=False,
    ),
    Flag(
        "controllers",
        _controllers,
        "Controllers to run, comma-separated: * enables all, foo enables foo, -foo disables foo; an empty list runs "
        f"only the webhooks. The controllers are {', '.join(CONTROLLERS)}. The default is *; podgrouper runs only if "
        "it is named here or the Configuration enables it.",
        default=("*",),
        merge=lambda earlier, later: earlier + later,
    ),
    Flag(
        "webhooks",
        goflags.boolean,
        "Serve the mutating and validating webhooks. With false, their port is not opened, and their Secret and "
        "webhook configuration are neither read nor written: for a manager that the API server cannot reach.",
        default=True,
    ),
    Flag(
        "feature-gates",
        feature_gates,
        "name=bool pairs, comma-separated. They override the gates of the Configuration. The gates are "
        f"{', '.join(features.known())}.",
        default={},
        merge=lambda earlier, later: {**earlier, **later},
    ),
    Flag("version", goflags.boolean, "Print the version and exit.", default=False),
    TRACING,
    *zap_flags(),
)
