# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Paths of requests, percent-encoded.

Groups, versions, namespaces and names may come from users: a value that is not a single path segment is rejected
(``InvalidRequestError``), not escaped, as in client-go.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import quote

from controller_runtime.apis.machinery import names
from controller_runtime.apis.machinery.gvk import Resource

from .errors import InvalidRequestError

_NO_SEGMENTS: Final = frozenset(("", ".", ".."))
_LONGEST_SHOWN: Final = 64


def segment(value: str) -> str:
    """Return ``value`` as one segment of a path.

    Raises:
        InvalidRequestError: the value is empty, ``.`` or ``..``, or contains ``/`` or ``%``.
    """
    if value in _NO_SEGMENTS or "/" in value or "%" in value:
        raise InvalidRequestError(f"{value[:_LONGEST_SHOWN]!r} cannot stand in the path of a request")
    try:
        return quote(value, safe="")
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"{value[:_LONGEST_SHOWN]!r} cannot stand in the path of a request"
        ) from error


def group_version_path(group: str, version: str) -> str:
    """Return the path of an API group and version.

    Raises:
        InvalidRequestError: the group or version is not valid.
    """
    if not names.is_api_group(group) or not names.is_api_version(version):
        shown = f"{group[:_LONGEST_SHOWN]}/{version[:_LONGEST_SHOWN]}"
        raise InvalidRequestError(f"{shown!r} is not the group and version of an API")
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


@lru_cache(maxsize=256)
def _roots(resource: Resource) -> tuple[str, str]:
    """Return the parts before and after the namespace in the paths of a resource."""
    return group_version_path(resource.group, resource.version), segment(resource.plural)


def collection_path(resource: Resource, namespace: str = "") -> str:
    """Return the path of a kind's objects, in one namespace or, without one, in all.

    Raises:
        InvalidRequestError: the namespace or the resource is not valid in a path.
    """
    root, plural = _roots(resource)
    if resource.namespaced and namespace:
        return f"{root}/namespaces/{segment(namespace)}/{plural}"
    return f"{root}/{plural}"


def object_path(resource: Resource, namespace: str, name: str) -> str:
    """Return the path of one object.

    Raises:
        InvalidRequestError: the name, or the namespace of a namespaced kind, is empty or not valid in a path.
    """
    if not name:
        raise InvalidRequestError(f"{resource.group_resource}: an object's name may not be empty")
    if resource.namespaced and not namespace:
        raise InvalidRequestError(f"{resource.group_resource} {name}: the namespace may not be empty")
    return f"{collection_path(resource, namespace)}/{segment(name)}"
