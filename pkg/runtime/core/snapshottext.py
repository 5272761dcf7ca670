# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The YAML of a runtime in a snapshot, as typed clients write and read it.

Every string that a YAML reader may take for another type is quoted: readers differ in the words and numbers they know.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, TypeVar

import pydantic_core
import yaml
from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.object import Object

from pkg import apply
from pkg.apis.trainer.v1alpha1 import RuntimeRef

T = TypeVar("T", bound=Object)

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BaseDumper: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_MOST_VALUES: Final = 100_000
"""Maximum number of values of a snapshot: aliases can multiply a short text."""
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]{2,}")
_WORDS: Final = frozenset({"yes", "true", "off", "false", "null", "nan", "inf"})


class SnapshotTextError(Exception):
    """A text does not contain the runtime that a TrainJob refers to. The message is upstream's."""


class _Dumper(_BaseDumper):  # type: ignore[valid-type, misc] # the class depends on the installation
    """Writes no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        """Return True for all data."""
        del data
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    plain = _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _represent_text)


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
    text: str = yaml.dump(data, Dumper=_Dumper, allow_unicode=True, width=1 << 20)
    return text


def decode(kind: type[T], text: str, ref: RuntimeRef) -> T:
    """Return the runtime of a snapshot.

    Raises:
        SnapshotTextError: the text is not a runtime, or not that of ``ref``.
    """
    try:
        data = yaml.load(text, Loader=_Loader)  # noqa: S506 (a safe loader)
        _check_size(data)
        runtime = kind.from_dict(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
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


def _check_size(data: JSON) -> None:
    if not isinstance(data, dict):
        raise ValueError("it is not a map")  # noqa: TRY004 (the text is at fault, not the caller)
    left = _MOST_VALUES
    pending: list[dict[str, JSON] | list[JSON]] = [data]
    while pending:
        value = pending.pop()
        children = value.values() if isinstance(value, dict) else value
        left -= len(value)
        if left < 0:
            raise ValueError(f"it has more than {_MOST_VALUES} values")
        pending += [each for each in children if isinstance(each, dict | list)]
