# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Read manifests and apply them to a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from controller_runtime.apis.machinery import yaml
from controller_runtime.apis.machinery.base import JSON
from controller_runtime.apis.machinery.errors import one_line
from controller_runtime.apis.machinery.object import Unstructured
from controller_runtime.client.interfaces import Writer

FIELD_OWNER: Final = "envtest"

Manifest = Mapping[str, JSON]


def read_manifests(*sources: Path | Manifest) -> list[dict[str, JSON]]:
    """Return the objects in files and in the ``.json``, ``.yaml`` and ``.yml`` files of folders, by file name.

    A list (``kind: List``) is replaced by its items. Sources that are objects are returned unchanged.

    Raises:
        ValueError: a file does not contain manifests; the message names it.
    """
    found: list[dict[str, JSON]] = []
    for source in sources:
        if isinstance(source, Mapping):
            found.append(dict(source))
            continue
        for file in _files(source):
            found.extend(_documents(file))
    return found


async def apply_manifests(client: Writer, objects: Iterable[Manifest], *, owner: str = FIELD_OWNER) -> None:
    """Server-side apply ``objects`` in order; repeating it is harmless, and no annotation limits their size."""
    for data in objects:
        await client.apply(Unstructured.wrap(dict(data)), field_owner=owner, force=True)


def _files(source: Path) -> list[Path]:
    if source.is_dir():
        return sorted(path for path in source.iterdir() if path.suffix in {".json", ".yaml", ".yml"})
    return [source]


def _documents(file: Path) -> list[dict[str, JSON]]:
    try:
        text = file.read_text(encoding="utf-8")
        is_json = file.suffix == ".json"
        documents = [value for _, value in yaml.load_all(text, strict=False, is_json=is_json)]
    except (OSError, ValueError) as error:
        raise ValueError(f"{file}: {one_line(error)}") from error
    flat = [item for document in documents for item in _items(document)]
    for number, document in enumerate(flat, 1):
        if not isinstance(document, dict) or not document.get("apiVersion") or not document.get("kind"):
            raise ValueError(f"{file}: document {number} has no apiVersion and kind")
    return flat


def _items(document: JSON) -> list[JSON]:
    if isinstance(document, dict) and document.get("kind") == "List":
        document = document.get("items") or []
    return list(document) if isinstance(document, list) else [document]
