# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Represents volumes by folders on this machine. Files of Secrets and ConfigMaps are not updated after the pod has
started.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
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
from trainerctl.localcluster.processes.shim import nofollow

_MODE: Final = 0o644
_TOKEN_MODE: Final = 0o600
_TOKEN_SECONDS: Final = 3600
_Files = dict[str, tuple[bytes, int | None]]
"""Content and mode by path in the volume."""
NewToken = Callable[[Pod, ServiceAccountTokenProjection], Awaitable[str]]
"""Returns a new token of a pod's service account."""


@dataclass(frozen=True)
class Volumes:
    """Makes the volumes of one pod below ``folder``.

    Volumes of claims are below ``claims`` and are kept after the pod.
    """

    pod: Pod
    folder: Path
    claims: Path
    address: str
    references: References
    new_token: NewToken

    async def make(self) -> dict[str, Path]:
        """Make the volumes. Return the folder of each volume. For a host path, return the path on the host.

        Raises:
            ConfigError: an object or a path that a volume refers to does not exist, or is not supported.
            StatusError: an object cannot be read, or a token is refused.
        """
        return {volume.name: await self._make(volume) for volume in self.pod.spec.volumes or []}

    @property
    def token_seconds(self) -> int | None:
        """The lifetime of the token in the volumes that expires first, in seconds, or None if there are no tokens."""
        lives = [token.expiration_seconds or _TOKEN_SECONDS for _, token in self._token_files()]
        return min(lives, default=None)

    async def renew_tokens(self) -> None:
        """Replace each token by a new one.

        A program that reads the file gets either the old or the new token, never a mix.

        Raises:
            StatusError: a token is refused.
        """
        for name, projection in self._token_files():
            token = await self.new_token(self.pod, projection)
            _write(self.folder / name, {projection.path: (token.encode(), _TOKEN_MODE)}, _TOKEN_MODE)

    def _token_files(self) -> list[tuple[str, ServiceAccountTokenProjection]]:
        """Return the tokens of projected volumes, each together with the name of the volume."""
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
        if is_read_only(volume):
            self._make_mount_points(path, volume.name)
        return path

    def _make_mount_points(self, folder: Path, name: str) -> None:
        """Create the folders in a volume at which containers mount other volumes.

        A kubelet creates them, too: once the volume is mounted, it is read-only.
        """
        for container in (*(self.pod.spec.init_containers or []), *(self.pod.spec.containers or [])):
            mounts = container.volume_mounts or []
            paths = [os.path.normpath(each.mount_path) for each in mounts]
            for mount, top in zip(mounts, paths, strict=True):
                if mount.name == name and not mount.sub_path and not mount.sub_path_expr:
                    for path in paths:
                        if path.startswith(f"{top}/"):
                            inside = os.path.realpath(folder) + path.removeprefix(top)
                            os.close(nofollow.opened(inside, create=True))

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
        """Return the files from a Secret, a ConfigMap or the pod's fields. Return None for any other source."""
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
    """Return the folder of a claim. A later claim with the same name has another folder."""
    return claims / namespace / f"{name}-{uid}"


def remove_data(claims: Path, namespace: str, name: str, uid: str) -> None:
    """Remove the data of a claim that was deleted."""
    shutil.rmtree(folder_of(claims, namespace, name, uid), ignore_errors=True)


def is_read_only(volume: Volume) -> bool:
    """Return True if containers can never write to the volume, even if their mounts do not say so."""
    claim = volume.persistent_volume_claim
    made_of_objects = (volume.config_map, volume.secret, volume.downward_api, volume.projected)
    return any(each is not None for each in made_of_objects) or bool(claim and claim.read_only)


def mounted(
    mount: VolumeMount, volumes: Mapping[str, Path], values: Mapping[str, str], *, read_only: bool = False
) -> dict[str, object]:
    """Return a mount in the form that plans use. If its sub-path does not exist, a folder is created there.

    ``read_only`` says whether the volume itself is read-only. The source contains no symbolic links.

    Raises:
        ConfigError: the volume does not exist, or the sub-path leads out of the volume, possibly through a symbolic
            link that a container made.
        OSError: the folder cannot be created.
    """
    if mount.name not in volumes:
        raise ConfigError(f"volume {mount.name} not found")
    top = Path(os.path.realpath(volumes[mount.name]))
    source = top
    sub = expand(mount.sub_path_expr, values) if mount.sub_path_expr else mount.sub_path
    if sub:
        source = Path(os.path.realpath(top / sub))
        if not _is_inside(sub) or not source.is_relative_to(top):
            raise ConfigError(f"subPath {sub} of volume {mount.name} must be a path inside the volume")
        os.close(nofollow.opened(str(source), create=True))
    return {
        "source": str(source),
        "target": os.path.normpath(mount.mount_path),
        "read_only": read_only or bool(mount.read_only),
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
    """Create or replace files. A program that reads a file gets either its old or its new content, never a mix."""
    for name, (content, own) in files.items():
        if not _is_inside(name):
            raise ConfigError(f"path {name} must be inside the volume")
        above, _, base = name.rpartition("/")
        new = f".{base}.new"
        within = nofollow.opened(f"{os.path.realpath(folder)}/{above}", create=True)
        try:
            with suppress(FileNotFoundError):
                os.unlink(new, dir_fd=within)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(new, flags, 0o600, dir_fd=within), "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), mode if own is None else own)
            os.rename(new, base, src_dir_fd=within, dst_dir_fd=within)
        finally:
            os.close(within)


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
