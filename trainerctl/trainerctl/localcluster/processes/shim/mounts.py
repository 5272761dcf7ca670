# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Mounts that only one container sees. They are made in its own mount namespace and do not change the host.

If a mount point does not exist, we cannot create it, because this would change the host. Instead, we replace its
nearest existing parent by a folder in memory with the same entries, and create the mount point there.
"""

import ctypes
import errno
import os
import socket
import stat
from collections.abc import Sequence
from typing import Any, Final

from trainerctl.localcluster.processes.shim import nofollow, tree

_NEW_NS: Final = 0x00020000
_NEW_UTS: Final = 0x04000000
_NEW_USER: Final = 0x10000000
_READ_ONLY: Final = 1
_REMOUNT: Final = 32
_BIND: Final = 4096
_REC: Final = 16384
_PRIVATE: Final = 1 << 18
_KEPT: Final = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME | os.ST_RELATIME
"""When we change one option of a mount, we have to repeat these options."""
_MOST_LINKS: Final = 40
_SPACES: Final = ("user", "mnt", "uts")
_libc = ctypes.CDLL(None, use_errno=True)


def unshare() -> None:
    """Give this process its own namespaces for mounts and the host name.

    Raises:
        OSError: the kernel does not allow it.
    """
    try:
        _unshare(_NEW_NS | _NEW_UTS)
    except PermissionError:
        user, group = os.getuid(), os.getgid()
        _unshare(_NEW_USER | _NEW_NS | _NEW_UTS)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    _mount("none", "/", "", _REC | _PRIVATE)


class Root:
    """The file system of one container. ``scratch`` is a folder in which we mount folders in memory."""

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch
        self._path = ""
        self._ours: set[str] = set()
        """Folders in which entries can be created without changing the host."""
        self._volumes: list[str] = []

    def mount(self, source: str, target: str, *, read_only: bool = False) -> None:
        """Show the folder or file ``source`` at the path ``target``.

        Raises:
            OSError: a part of ``source`` is a symbolic link: it would show another file of the host.
        """
        shown = nofollow.opened(source)
        try:
            target = self.make(target, folder=stat.S_ISDIR(os.fstat(shown).st_mode))
            place = self._path + target
            _mount(f"/proc/self/fd/{shown}", place, "", _BIND | _REC)
        finally:
            os.close(shown)
        if read_only:
            kept = os.statvfs(place).f_flag & _KEPT
            _mount("none", place, "", _BIND | _REMOUNT | _READ_ONLY | kept)
        self._volumes.append(target)

    def make(self, target: str, *, folder: bool) -> str:
        """Make sure that ``target`` exists, and return it with symbolic links resolved."""
        target = self._resolved(target)
        below = "/"
        for name in target.strip("/").split("/"):
            path = os.path.join(below, name)
            if not os.path.lexists(self._path + path):
                if not self._is_ours(below):
                    self._replace(below)
                if folder or path != target:
                    os.mkdir(self._path + path)
                else:
                    os.close(os.open(self._path + path, os.O_CREAT | os.O_WRONLY, 0o666))
                self._ours.add(path)
            below = path
        return target

    def _resolved(self, target: str) -> str:
        """Resolve the symbolic links in a path as a process in this root does. Volumes may contain links, too.

        Raises:
            OSError: there are too many links.
        """
        names, path, links = target.split("/")[::-1], "/", 0
        while names:
            name = names.pop()
            if name == "..":
                path = os.path.dirname(path)
            elif name not in ("", "."):
                below = os.path.join(path, name)
                if not os.path.islink(self._path + below):
                    path = below
                    continue
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), target)
                link = os.readlink(self._path + below)
                path = "/" if link.startswith("/") else path
                names += link.split("/")[::-1]
        return path

    def enter(self) -> None:
        """Make this file system the root of this process."""
        if self._path:
            os.chroot(self._path)
            os.chdir("/")

    def _is_ours(self, path: str) -> bool:
        return path in self._ours or any(path == v or path.startswith(f"{v}/") for v in self._volumes)

    def _replace(self, path: str) -> None:
        """Replace a folder by a folder in memory that has the same entries."""
        here, copy = self._path + path, os.path.join(self._scratch, str(len(self._ours)))
        os.makedirs(copy, exist_ok=True)
        mode = stat.S_IMODE(os.stat(here).st_mode)
        _mount("tmpfs", copy, "tmpfs", 0, f"mode={mode:o}")
        for entry in os.scandir(here):
            _copy(entry, os.path.join(copy, entry.name))
        if path == "/":
            self._path = copy
        else:
            _mount(copy, here, "", _BIND | _REC)
        self._ours.add(path)


def prepare(plan: dict[str, Any]) -> None:
    """Make the mounts of a plan and enter them."""
    unshare()
    socket.sethostname(plan["hostname"])
    root = Root(plan["scratch"])
    mounts: Sequence[dict[str, Any]] = plan["mounts"]
    for each in sorted(mounts, key=lambda each: each["target"].count("/")):
        root.mount(each["source"], each["target"], read_only=each.get("read_only", False))
    root.make(plan["cwd"], folder=True)
    root.enter()


def enter(pid: int, began: int) -> None:
    """Move this process into a container: it gets the mounts, host name and root folder of the process ``pid``.

    Raises:
        OSError: the process has ended, its mounts cannot be entered, or ``began`` is not its `tree.start_time`: then
            another process has the PID.
    """
    spaces = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in _SPACES if not _is_shared(pid, name)]
    root = os.open(f"/proc/{pid}/root", os.O_PATH)
    if tree.start_time(pid) != began:  # another process has the pid now
        raise ProcessLookupError(f"process {pid} has ended")
    for space in spaces:
        _check(_libc.setns(space, 0), f"namespaces of {pid} cannot be entered")
    if spaces:
        os.fchdir(root)
        os.chroot(".")


def _is_shared(pid: int, name: str) -> bool:
    return os.stat(f"/proc/{pid}/ns/{name}").st_ino == os.stat(f"/proc/self/ns/{name}").st_ino


def _copy(entry: os.DirEntry[str], to: str) -> None:
    """Show an entry of a folder at the path ``to``. Leave it out if it has disappeared or is not readable."""
    try:
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), to)
            return
        if entry.is_dir():
            os.mkdir(to)
        else:
            os.close(os.open(to, os.O_CREAT | os.O_WRONLY))
        _mount(entry.path, to, "", _BIND | _REC)
    except OSError:
        return


def _unshare(flags: int) -> None:
    _check(_libc.unshare(flags), "namespaces cannot be made")


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    names, options = (source.encode(), target.encode(), kind.encode() or None), data.encode() or None
    _check(_libc.mount(*names, ctypes.c_ulong(flags), options), f"{source} cannot be mounted at {target}")


def _check(result: int, problem: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{problem}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
