# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The YAML of a runtime in a snapshot, as typed clients write and read it."""

from __future__ import annotations

import hashlib
from typing import TypeVar

import pydantic_core
from controller_runtime.apis.machinery import yaml
from controller_runtime.apis.machinery.object import Object

from pkg import apply
from pkg.apis.trainer.v1alpha1 import RuntimeRef

T = TypeVar("T", bound=Object)


class SnapshotTextError(Exception):
    """A text does not contain the runtime that a TrainJob refers to. The message is upstream's."""


def digest(text: str) -> bytes:
    """Return the digest of a snapshot."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def encode(runtime: Object) -> str:
    """Return the YAML of a runtime."""
    data = runtime.to_dict()
    data |= {"apiVersion": runtime.gvk.api_version, "kind": runtime.gvk.kind}
    data.get("metadata", {}).pop("managedFields", None)
    if "spec" in data:
        data["spec"] = apply.as_typed(data["spec"])
    return yaml.dump(data, sort_keys=True)


def decode(kind: type[T], text: str, ref: RuntimeRef) -> T:
    """Return the runtime of a snapshot.

    Raises:
        SnapshotTextError: the text is not a runtime, or not that of ``ref``.
    """
    try:
        data = yaml.load(text, strict=False)
        if not isinstance(data, dict):
            raise yaml.YAMLError("it is not a map")
        runtime = kind.from_dict(data)
    except ValueError as error:
        reason = error.errors()[0]["msg"] if isinstance(error, pydantic_core.ValidationError) else error
        raise SnapshotTextError(f"unable to unmarshal the snapshot: {reason}") from error
    group, _, _ = (data.get("apiVersion") or "").rpartition("/")
    found = (runtime.name, group, data.get("kind") or "")
    wanted = (ref.name, ref.api_group, ref.kind)
    if any(want is not None and want != have for want, have in zip(wanted, found, strict=True)):
        expected = ", ".join(f'"{"<any>" if each is None else each}"' for each in wanted)
        present = ", ".join(f'"{each}"' for each in found)
        raise SnapshotTextError(
            "the snapshot refers to the wrong runtime: expecting a runtime with name, api group and kind of "
            f"{expected} but found runtime with name, api group and kind of {present}"
        )
    return runtime
