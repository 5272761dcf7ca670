# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Volumes as folders of this machine. Files of Secrets and ConfigMaps are not updated after the pod has started."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from controller_runtime.apis.core.v1 import (
    Container,
    DownwardAPIVolumeFile,
    HostPathVolumeSource,
    KeyToPath,
    Pod,
    SecretVolumeSource,
    ServiceAccountTokenProjection,
    Volume,
    VolumeMount,
    VolumeProjection,
)

from trainerctl.localcluster.processes.environment import (
    ConfigError,
    References,
    expand,
    field_text,
    resource_text,
)

_MODE: Final = 0o644
_TOKEN_MODE: Final = 0o600
_TOKEN_SECONDS: Final = 3600
_Files = dict[str, tuple[bytes, int | None]]
"""Content and mode by path in the volume."""
NewToken = Callable[[Pod, ServiceAccountTokenProjection], Awaitable[str]]
"""Returns a new token of a pod's service account."""


@dataclass(frozen=True)
class Volumes:
    """Makes the volumes of one pod below ``folder``; those of claims are below ``claims`` and outlive the pod."""

    pod: Pod
    folder: Path
    claims: Path
    address: str
    references: References
    new_token: NewToken

    async def make(self) -> dict[str, Path]:
        """Make the volumes; return the folder of each volume, or for a host path, its path.

        Raises:
            ConfigError: an object or a path that a volume refers to does not exist, or is not supported.
            StatusError: an object cannot be read, or a token is refused.
        """
        return {volume.name: await self._make(volume) for volume in self.pod.spec.volumes or []}

    @property
    def token_seconds(self) -> int | None:
        """The seconds for which the shortest-lived token in the volumes is valid, or None without tokens."""
        lives = [token.expiration_seconds or _TOKEN_SECONDS for _, token in self._token_files()]
        return min(lives, default=None)

    async def renew_tokens(self) -> None:
        """Replace each token by a new one. A reader of the file sees either the whole old or the whole new token.

        Raises:
            StatusError: a token is refused.
        """
        for name, projection in self._token_files():
            path = self.folder / name / projection.path
            new = path.with_name(f".{path.name}.new")
            new.write_text(await self.new_token(self.pod, projection))
            new.chmod(_TOKEN_MODE)
            new.rename(path)

    def _token_files(self) -> list[tuple[str, ServiceAccountTokenProjection]]:
        """Return the tokens in projected volumes, each with the name of its volume."""
        return [
            (volume.name, source.service_account_token)
            for volume in self.pod.spec.volumes or []
            for source in (volume.projected.sources if volume.projected else None) or []
            if source.service_account_token is not None
        ]

    async def _make(self, volume: Volume) -> Path:
        if volume.host_path is not None:
            return _host_path(volume.host_path)
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
            path = folder_of(self.claims, self.pod.namespace, name, await self.references.claim(name))
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            return path
        path = self.folder / volume.name
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
        mode, files = await self._files(volume)
        _write(path, files, mode or _MODE)
        return path

    async def _files(self, volume: Volume) -> tuple[int | None, _Files]:
        if volume.projected is None:
            held = volume.secret or volume.config_map or volume.downward_api
            return held.default_mode if held else None, await self._content(volume) or {}
        files: _Files = {}
        for source in volume.projected.sources or []:
            if (token := source.service_account_token) is not None:
                files[token.path] = (await self.new_token(self.pod, token)).encode(), _TOKEN_MODE
            elif (found := await self._content(source)) is not None:
                files.update(found)
            else:
                raise ConfigError("a projected volume has a source that is not supported")
        return volume.projected.default_mode, files

    async def _content(self, source: Volume | VolumeProjection) -> _Files | None:
        """Return the files of a Secret, a ConfigMap or the pod's fields; None for any other source."""
        if (secret := source.secret) is not None:
            name = secret.secret_name if isinstance(secret, SecretVolumeSource) else secret.name
            data = await self.references.secret(name or "", optional=secret.optional)
            return _selected(data, secret.items, name, secret.optional)
        if (config_map := source.config_map) is not None:
            data = await self.references.config_map(config_map.name or "", optional=config_map.optional)
            return _selected(data, config_map.items, config_map.name, config_map.optional)
        return None if source.downward_api is None else self._fields(source.downward_api.items or [])

    def _fields(self, items: Iterable[DownwardAPIVolumeFile]) -> _Files:
        files: _Files = {}
        for item in items:
            if item.field_ref is not None:
                text = field_text(self.pod, item.field_ref, self.address)
            elif item.resource_field_ref is not None:
                container = (self.pod.spec.containers or [Container()])[0]
                text = resource_text(self.pod, item.resource_field_ref, container)
            else:
                continue
            files[item.path] = (text.encode(), item.mode)
        return files


def folder_of(claims: Path, namespace: str, name: str, uid: str) -> Path:
    """Return the folder of a claim; a later claim of the same name has another folder."""
    return claims / namespace / f"{name}-{uid}"


def remove_data(claims: Path, namespace: str, name: str, uid: str) -> None:
    """Remove the data of a claim that was deleted."""
    shutil.rmtree(folder_of(claims, namespace, name, uid), ignore_errors=True)


def mounted(mount: VolumeMount, volumes: Mapping[str, Path], values: Mapping[str, str]) -> dict[str, object]:
    """Return a mount in the form of a plan; a sub-path that does not exist is created as a folder.

    Raises:
        ConfigError: the volume does not exist, or the sub-path leads out of the volume.
    """
    if mount.name not in volumes:
        raise ConfigError(f"volume {mount.name} not found")
    source = volumes[mount.name]
    sub = expand(mount.sub_path_expr, values) if mount.sub_path_expr else mount.sub_path
    if sub:
        if not _is_inside(sub):
            raise ConfigError(f"subPath {sub} of volume {mount.name} must be a path inside the volume")
        source = source / sub
        if not source.exists():
            source.mkdir(parents=True)
    return {
        "source": str(source),
        "target": os.path.normpath(mount.mount_path),
        "read_only": bool(mount.read_only),
    }


def _selected(
    data: Mapping[str, bytes] | None, items: list[KeyToPath] | None, name: str | None, optional: bool | None
) -> _Files:
    if data is None:
        return {}
    if items is None:
        return {key: (content, None) for key, content in data.items()}
    if not optional and (missing := [item.key for item in items if item.key not in data]):
        raise ConfigError(f"references non-existent config key: {missing[0]} of {name}")
    return {item.path: (data[item.key], item.mode) for item in items if item.key in data}


def _write(folder: Path, files: _Files, mode: int) -> None:
    for name, (content, own) in files.items():
        if not _is_inside(name):
            raise ConfigError(f"path {name} must be inside the volume")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        path.chmod(mode if own is None else own)


def _host_path(source: HostPathVolumeSource) -> Path:
    path, kind = Path(source.path), source.type or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch()
    if (
        not path.exists()
        or (kind == "Directory" and not path.is_dir())
        or (kind == "File" and not path.is_file())
    ):
        raise ConfigError(f"hostPath {path} does not exist or is not a {kind or 'file or folder'}")
    return path


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts
