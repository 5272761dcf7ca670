# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Names that the server shares with the pods that call it."""

from __future__ import annotations

import re
from typing import Final

from pkg.apis.trainer.v1alpha1 import GROUP_VERSION

_PATH: Final = re.compile(f"/apis/{re.escape(GROUP_VERSION)}/namespaces/([^/]+)/trainjobs/([^/]+)/status")


def token_audience(namespace: str, name: str) -> str:
    """Return the audience of tokens for the status of a TrainJob."""
    return f"{GROUP_VERSION}/namespaces/{namespace}/trainjobs/{name}/status"


def status_url(namespace: str, name: str) -> str:
    """Return the path at which the status of a TrainJob is updated."""
    return f"/apis/{token_audience(namespace, name)}"


def train_job_of(path: str) -> tuple[str, str] | None:
    """Return the namespace and name of the TrainJob whose status has this path, or None."""
    found = _PATH.fullmatch(path)
    return (found[1], found[2]) if found else None
