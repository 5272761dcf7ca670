# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of the pinned Kubernetes releases, and etcd."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from controller_runtime.envtest.errors import EnvtestError
from controller_runtime.envtest.tool import Tool, ToolGroup

VERSION_VARIABLE: Final = "ENVTEST_K8S_VERSION"
DEFAULT_RELEASE: Final = "1.35"

_TOOLS: Final = Path(__file__).parent / "tools"
_ETCD: Final = ToolGroup(_TOOLS / "etcd", "go.etcd.io/etcd/server/v3")
_MODULE: Final = "k8s.io/kubernetes"

ETCD: Final = Tool("etcd", _ETCD, "go.etcd.io/etcd/server/v3")
RELEASES: Final[Mapping[str, ToolGroup]] = {
    "1.34": ToolGroup(_TOOLS / "kube-1.34", _MODULE),
    "1.35": ToolGroup(_TOOLS / "kube", _MODULE),
    "1.36": ToolGroup(_TOOLS / "kube-1.36", _MODULE),
    "1.37": ToolGroup(_TOOLS / "kube-1.37", _MODULE),
}
"""The pinned patch version of each release line."""


def release_of(version: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the release line of ``version``, which may be a patch version (``1.36.3``, ``v1.36.3``).

    An empty version means that of the variable ``ENVTEST_K8S_VERSION`` in ``environ``, else the default.

    Raises:
        EnvtestError: the release line is not pinned.
    """
    wanted = version or (environ or {}).get(VERSION_VARIABLE, "") or DEFAULT_RELEASE
    line = ".".join(wanted.removeprefix("v").split(".")[:2])
    if line not in RELEASES:
        known = ", ".join(RELEASES)
        raise EnvtestError(f"Kubernetes {wanted} is not among the pinned releases: {known}")
    return line


def kube_tool(name: str, release: str = DEFAULT_RELEASE) -> Tool:
    """Return the tool for a program of a Kubernetes release; the binary reports the version it was built from."""
    group = RELEASES[release]
    major, minor = group.version.removeprefix("v").split(".")[:2]
    stamp = "k8s.io/component-base/version."
    symbols = {f"{stamp}gitVersion": group.version, f"{stamp}gitMajor": major, f"{stamp}gitMinor": minor}
    return Tool(name, group, f"{_MODULE}/cmd/{name}", symbols)
