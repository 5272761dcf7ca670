# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The operator in ``docs/from-kopf.md``, and a storage service in memory for it."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import anyio

PAGE = Path(__file__).parents[1] / "docs" / "from-kopf.md"


@contextmanager
def imported_page(folder: Path) -> Iterator[ModuleType]:
    """Import the page's operator from a file in ``folder``: the descriptions of its CRD are read from the source."""
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (folder / "buckets.py").write_text(block)
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("buckets")
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("buckets", None)


class Storage:
    """A storage service in memory."""

    def __init__(self) -> None:
        self.buckets: dict[str, int] = {}
        self.capacity = 10
        self._lost, self._losses = anyio.create_memory_object_stream[tuple[str, str]](10)

    async def free(self) -> int:
        return self.capacity

    async def ensure(self, uid: str, size: int) -> bool:
        changed = self.buckets.get(uid) != size
        self.buckets[uid] = size
        return changed

    async def used(self, uid: str) -> int:
        return len(uid)

    async def delete(self, uid: str) -> None:
        self.buckets.pop(uid, None)

    async def losses(self) -> AsyncIterator[tuple[str, str]]:
        with self._losses:
            async for key in self._losses:
                yield key

    def lose(self, uid: str, key: tuple[str, str]) -> None:
        """Lose a bucket, and report that."""
        del self.buckets[uid]
        self._lost.send_nowait(key)

    def close(self) -> None:
        """Report no more losses."""
        self._lost.close()
        self._losses.close()
