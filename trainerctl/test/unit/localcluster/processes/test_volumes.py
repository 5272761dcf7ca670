# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Volumes of pods that run as local processes."""

import base64
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Pod, Secret, Volume, VolumeMount
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, unstructured

from trainerctl.localcluster.processes.environment import ConfigError, References
from trainerctl.localcluster.processes.shim import nofollow
from trainerctl.localcluster.processes.volumes import Volumes, is_read_only, mounted, remove_data

CLAIM = unstructured(GVK("", "v1", "PersistentVolumeClaim"))


class _Tokens:
    def __init__(self) -> None:
        self.issued = 0

    async def token(self, pod: Pod, projection: Any) -> str:
        self.issued += 1
        return f"token {self.issued} of {pod.name} for {projection.audience}"


async def _make(folder: Path, *volumes: dict[str, Any]) -> dict[str, Path]:
    return await _volumes(folder, *volumes).make()


def _volumes(folder: Path, *volumes: dict[str, Any]) -> Volumes:
    metadata = {"namespace": "team"}
    objects = [
        ConfigMap.from_dict({"metadata": {"name": "cm", **metadata}, "data": {"a": "1", "b": "2"}}),
        CLAIM.wrap(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "data", "uid": "uid-of-data", **metadata},
            }
        ),
        Secret.from_dict(
            {"metadata": {"name": "s", **metadata}, "data": {"key": base64.b64encode(b"\x00\xff").decode()}}
        ),
    ]
    pod = Pod.from_dict({"metadata": {"name": "web", **metadata}, "spec": {"volumes": list(volumes)}})
    references = References(FakeClient(*objects), "team")
    return Volumes(pod, folder / "pod", folder / "claims", "127.64.0.1", references, _Tokens().token)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_secrets_and_config_maps_become_files(tmp_path: Path) -> None:
    made = await _make(
        tmp_path,
        {"name": "all", "configMap": {"name": "cm"}},
        {"name": "some", "configMap": {"name": "cm", "items": [{"key": "b", "path": "deep/b"}]}},
        {"name": "s", "secret": {"secretName": "s", "defaultMode": 0o400}},
        {"name": "none", "secret": {"secretName": "none", "optional": True}},
    )
    assert _files(made["all"]) == {"a": b"1", "b": b"2"}
    assert _files(made["some"]) == {"deep/b": b"2"}
    assert _files(made["s"]) == {"key": b"\x00\xff"}
    assert (made["s"] / "key").stat().st_mode & 0o777 == 0o400
    assert _files(made["none"]) == {}


async def test_projected_sources_share_a_folder(tmp_path: Path) -> None:
    sources = [
        {"configMap": {"name": "cm", "items": [{"key": "a", "path": "a"}]}},
        {"secret": {"name": "s"}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {"serviceAccountToken": {"path": "token", "audience": "x"}},
    ]
    made = await _make(tmp_path, {"name": "all", "projected": {"sources": sources}})
    assert _files(made["all"]) == {
        "a": b"1",
        "key": b"\x00\xff",
        "name": b"web",
        "token": b"token 1 of web for x",
    }


async def test_tokens_are_renewed_in_place(tmp_path: Path) -> None:
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
        {"configMap": {"name": "cm"}},
    ]
    volumes = _volumes(
        tmp_path, {"name": "all", "projected": {"sources": sources}}, {"name": "e", "emptyDir": {}}
    )
    assert volumes.token_seconds == 600
    made = await volumes.make()
    await volumes.renew_tokens()
    assert _files(made["all"]) == {"token": b"token 2 of web for None", "a": b"1", "b": b"2"}
    assert (made["all"] / "token").stat().st_mode & 0o777 == 0o600
    assert _volumes(tmp_path, {"name": "e", "emptyDir": {}}).token_seconds is None


async def test_a_claim_outlives_its_pod_and_its_data_ends_with_it(tmp_path: Path) -> None:
    made = await _make(tmp_path, {"name": "data", "persistentVolumeClaim": {"claimName": "data"}})
    assert made["data"] == tmp_path / "claims" / "team" / "data-uid-of-data"
    (made["data"] / "model").write_text("weights")
    remove_data(tmp_path / "claims", "team", "data", "uid-of-a-later-claim")
    assert _files(made["data"]) == {"model": b"weights"}
    remove_data(tmp_path / "claims", "team", "data", "uid-of-data")
    assert not made["data"].exists()


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"secret": {"secretName": "none"}}, 'secret "none" not found'),
        ({"configMap": {"name": "cm", "items": [{"key": "x", "path": "x"}]}}, "non-existent config key: x"),
        ({"configMap": {"name": "cm", "items": [{"key": "a", "path": "../a"}]}}, "must be inside"),
        ({"hostPath": {"path": "/nonexistent/x"}}, "/nonexistent/x does not exist"),
    ],
)
async def test_a_volume_that_cannot_be_made_is_explained(
    tmp_path: Path, volume: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        await _make(tmp_path, {"name": "v", **volume})


def test_a_sub_path_must_stay_in_its_volume(tmp_path: Path) -> None:
    mount = VolumeMount(name="v", mount_path="/data/", sub_path_expr="$(A)/x")
    found = mounted(mount, {"v": tmp_path}, {"A": "a"})
    assert found == {"source": str(tmp_path / "a" / "x"), "target": "/data", "read_only": False}
    assert (tmp_path / "a" / "x").is_dir()
    with pytest.raises(ConfigError, match="inside the volume"):
        mounted(mount, {"v": tmp_path}, {"A": ".."})
    with pytest.raises(ConfigError, match="volume v not found"):
        mounted(mount, {}, {})


@pytest.mark.parametrize("link", ["{outside}", "../outside", "here/../../outside"])
@pytest.mark.parametrize("sub", ["link", "link/new", "deep/link/new"])
def test_a_sub_path_does_not_follow_a_link_out_of_its_volume(tmp_path: Path, link: str, sub: str) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    for folder in (volume / "here", volume / "deep", outside):
        folder.mkdir(parents=True)
    (volume / "link").symlink_to(link.format(outside=outside))
    (volume / "deep" / "link").symlink_to(volume / "link")
    with pytest.raises(ConfigError, match=f"subPath {sub} of volume v must be a path inside the volume"):
        mounted(VolumeMount(name="v", mount_path="/data", sub_path=sub), {"v": volume}, {})
    assert not [*outside.iterdir()]


def test_a_link_within_the_volume_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "latest").symlink_to("real")
    found = mounted(VolumeMount(name="v", mount_path="/data", sub_path="latest/x"), {"v": tmp_path}, {})
    assert found["source"] == str(tmp_path / "real" / "x")
    assert (tmp_path / "real" / "x").is_dir()


def test_a_folder_that_became_a_link_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "link").symlink_to("outside")
    for path in ("link", "link/new"):
        with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
            nofollow.opened(str(tmp_path / path), create=True)
    assert not [*(tmp_path / "outside").iterdir()]


@pytest.mark.parametrize("path", ["token", "deep/token"])
async def test_a_renewed_token_is_not_written_through_a_link(tmp_path: Path, path: str) -> None:
    sources = [{"serviceAccountToken": {"path": path}}]
    volumes = _volumes(tmp_path, {"name": "all", "projected": {"sources": sources}})
    made = await volumes.make()
    outside = tmp_path / "outside"
    outside.write_text("mine")
    token = made["all"] / path
    (token.parent / ".token.new").symlink_to(outside)
    await volumes.renew_tokens()
    assert outside.read_text() == "mine"
    assert token.read_text() == "token 2 of web for None"
    assert not token.is_symlink()


async def test_no_file_is_written_below_a_folder_that_became_a_link(tmp_path: Path) -> None:
    volume = {"name": "some", "configMap": {"name": "cm", "items": [{"key": "b", "path": "deep/b"}]}}
    made = await _make(tmp_path, volume)
    (tmp_path / "outside").mkdir()
    (made["some"] / "deep" / "b").unlink()
    (made["some"] / "deep").rmdir()
    (made["some"] / "deep").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
        await _make(tmp_path, volume)  # a kubelet that starts again makes the volumes again
    assert not [*(tmp_path / "outside").iterdir()]


@pytest.mark.parametrize(
    ("volume", "fixed"),
    [
        ({"configMap": {"name": "cm"}}, True),
        ({"secret": {"secretName": "s"}}, True),
        ({"downwardAPI": {}}, True),
        ({"projected": {"sources": []}}, True),
        ({"persistentVolumeClaim": {"claimName": "c", "readOnly": True}}, True),
        ({"persistentVolumeClaim": {"claimName": "c"}}, False),
        ({"emptyDir": {}}, False),
        ({"hostPath": {"path": "/"}}, False),
    ],
)
def test_volumes_that_are_made_of_objects_are_read_only(volume: dict[str, Any], fixed: bool) -> None:
    assert is_read_only(Volume.from_dict({"name": "v", **volume})) is fixed
