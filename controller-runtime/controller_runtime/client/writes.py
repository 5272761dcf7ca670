# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The log lines about writes, at debug."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

from controller_runtime import log
from controller_runtime.rest import Request
from controller_runtime.rest.request import APPLY

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_log = log.logger_from("client")


def log_write(request: Request, status: int) -> None:
    """Log a successful write: its verb, resource and object. Reads are not logged."""
    verb = _VERBS.get(request.method)
    if verb is None:
        return
    if request.headers.get("Content-Type") == APPLY:
        verb = "apply"
    resource, key, subresource = target_of(request.path)
    below = {"subresource": subresource} if subresource else {}
    dry = {"dryRun": True} if any(name == "dryRun" for name, _ in request.query) else {}
    _log.debug("Wrote", verb=verb, resource=resource, object=key, **below, **dry, status=status)


def target_of(path: str) -> tuple[str, str, str]:
    """Return resource, object and subresource of a request's path, as kubectl names them; unknown parts are empty."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    group, rest = (parts[1], parts[3:]) if parts[0] == "apis" and len(parts) > 3 else ("", parts[2:])
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *_ = [*rest, "", "", ""]
    resource = f"{plural}.{group}" if group else plural
    return resource, f"{namespace}/{name}" if namespace else name, subresource
