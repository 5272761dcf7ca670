# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Opens paths in volumes, where a container may have planted symbolic links that lead to other files of the host."""

import errno
import os
import stat


def opened(path: str, flags: int = os.O_PATH, *, create: bool = False) -> int:
    """Open an absolute path of which no part is a symbolic link, and return the file descriptor.

    With ``create``, missing folders are created.

    Raises:
        OSError: a part of the path is a symbolic link or does not exist.
    """
    parts = [name for name in path.split("/") if name]
    at = os.open("/", os.O_PATH)
    try:
        for index, name in enumerate(parts):
            kind = flags if index == len(parts) - 1 else os.O_PATH | os.O_DIRECTORY
            try:
                below = os.open(name, kind | os.O_NOFOLLOW, dir_fd=at)
            except FileNotFoundError:
                if not create:
                    raise
                os.mkdir(name, 0o755, dir_fd=at)
                below = os.open(name, kind | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
    except BaseException:
        os.close(at)
        raise
    if stat.S_ISLNK(os.fstat(at).st_mode):  # O_PATH opens the link itself
        os.close(at)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return at
