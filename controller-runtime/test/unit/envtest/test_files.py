# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Directories with predictable names in a folder in which every user can create files, locks, and reserved ports."""

import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from controller_runtime.envtest import file_lock, free_ports, private_directory
from controller_runtime.envtest.environment import make_directories

STRANGER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


def planted_directory(path: Path) -> None:
    path.mkdir()
    os.chown(path, STRANGER, STRANGER)


def planted_link(path: Path) -> None:
    target = path.with_name("target")
    target.mkdir(mode=0o755)
    path.symlink_to(target)
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


planted = pytest.mark.parametrize("plant", [planted_directory, planted_link])


@as_root
@planted
def test_what_another_user_planted_is_neither_used_nor_changed(
    plant: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "state"
    plant(path)
    mode = path.stat().st_mode
    with pytest.raises(PermissionError, match="belongs to another user"):
        private_directory(path)
    assert path.stat().st_mode == mode


@as_root
@planted
def test_neither_ports_nor_environments_use_what_another_user_planted(
    plant: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for use, name in (
        (lambda: free_ports(1), "controller-runtime-ports-0"),
        (make_directories, "controller-runtime-envtest-0"),
    ):
        plant(tmp_path / name)
        with pytest.raises(PermissionError, match=name):
            use()
        assert not list((tmp_path / name).iterdir())
        if (tmp_path / "target").exists():
            (tmp_path / "target").rmdir()


def test_a_directory_of_this_user_is_made_private_also_through_a_link_of_this_user(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.mkdir(mode=0o755)
    link.symlink_to(target)
    assert private_directory(link) == link
    assert target.stat().st_mode & 0o777 == 0o700
    assert private_directory(tmp_path / "new" / "folder").stat().st_mode & 0o777 == 0o700


def test_a_file_is_not_used_as_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        private_directory(tmp_path / "file")


async def test_a_caller_that_waits_for_a_lock_is_told_once_and_gets_it_next(tmp_path: Path) -> None:
    told: list[str] = []

    async def wait() -> None:
        async with file_lock(tmp_path / "lock", waiting=lambda: told.append("waits")):
            told.append("holds")

    async with (
        anyio.create_task_group() as tasks,
        file_lock(tmp_path / "lock", waiting=lambda: told.append("at once")),
    ):
        tasks.start_soon(wait)
        await anyio.sleep(1)
        assert told == ["waits"]
    assert told == ["waits", "holds"]


def test_two_calls_do_not_choose_the_same_port_before_its_server_listens(tmp_path: Path) -> None:
    first = free_ports(5, choose=random.Random(7), reservations=tmp_path)
    second = free_ports(5, choose=random.Random(7), reservations=tmp_path)
    assert not set(first) & set(second)


def test_a_reservation_ends_when_its_server_should_have_started(tmp_path: Path) -> None:
    (first,) = free_ports(1, choose=random.Random(7), reservations=tmp_path)
    long_ago = time.time() - 300
    os.utime(tmp_path / str(first), (long_ago, long_ago))
    assert free_ports(1, choose=random.Random(7), reservations=tmp_path) == [first]
