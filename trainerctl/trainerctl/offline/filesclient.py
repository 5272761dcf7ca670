# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The client that the manager's pipeline uses offline: it reads objects of the input."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, TypeVar

import pydantic_core
from controller_runtime.apis.core.v1 import Secret
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.client import Reader
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import NamespacedName, Object
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.rest import RestError
from pkg.apis.config.v1alpha1 import defaulted

from trainerctl.offline.inputfiles import InputObject

T = TypeVar("T", bound=Object)

_AUTHORITY: Final = base64.b64encode(b"<certificate authority of the manager>").decode()


class FilesClient(FakeClient):
    """A client whose PriorityClasses are those of the input, and those of ``cluster`` if it is given.

    If it is not known whether a PriorityClass exists, it counts as existing, and a note is added to ``notes``. A
    placeholder replaces the certificate authority of the manager, which pods that report progress need.
    """

    def __init__(self, found: Iterable[InputObject], cluster: Reader | None = None) -> None:
        super().__init__()
        self._cluster = cluster
        self.notes: list[str] = []
        for document in found:
            if document.gvk == PriorityClass.gvk:
                with suppress(pydantic_core.ValidationError):
                    self.add(PriorityClass.from_dict(document.data))

    async def get(self, kind: type[T], key: tuple[str, str]) -> T:
        """Return an object."""
        name = NamespacedName.of(key).name
        try:
            return await super().get(kind, key)
        except NotFoundError:
            if kind is Secret and name == defaulted().cert_management.webhook_secret_name:
                return kind.from_dict({"metadata": {"name": name}, "data": {"ca.crt": _AUTHORITY}})
            if kind is not PriorityClass:
                raise
        note = f"it is not known whether the PriorityClass {name} exists"
        if self._cluster is None:
            note += ": it is not in the files"
        else:
            try:
                return await self._cluster.get(kind, key)
            except NotFoundError:
                raise
            except (StatusError, RestError) as error:
                note += f": {error}"
        if note not in self.notes:
            self.notes.append(note)
        return kind.from_dict({"metadata": {"name": name}})
