# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A manager that reads objects of one kind and prints its peak memory on stdout.

Arguments: the server's address and a namespace. Each reconcile prints a line of JSON: the object's name, its version,
the total length of its lines (``held``), and by how many bytes the process grew at most since the end of the previous
reconcile (``peak``).
"""

import ctypes
import gc
import json
import sys
from pathlib import Path

import anyio

import controller_runtime as ctrl
from controller_runtime.cache import Cache
from controller_runtime.machinery import GVK, rawjson, unstructured

LARGE = unstructured(GVK("fault.example.org", "v1", "Large"))


def kilobytes(what: str) -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith(f"{what}:"))


def begin_anew() -> int:
    """Reset the peak and return the process's size in KiB.

    Freed memory goes back to the system first: otherwise the next object could reuse it without raising the peak.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return kilobytes("VmRSS")


class Reader:
    """Reads each object from the cache and prints its line."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._before = 0

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        large = await self._cache.get(LARGE, request)
        held = sum(map(len, large["spec"]["lines"]))
        peak = kilobytes("VmHWM") - self._before
        say = {
            "name": large.name,
            "version": large.metadata.resource_version,
            "held": held,
            "peak": peak * 1024,
        }
        del large
        self._before = begin_anew()
        sys.stdout.write(json.dumps(say) + "\n")
        sys.stdout.flush()
        return ctrl.Result()


async def main(*arguments: str) -> None:
    server, namespace = arguments
    cache = ctrl.cache.Options(default_namespaces=(namespace,), limits=rawjson.Limits(size=16 << 20))
    mgr = ctrl.Manager(ctrl.Config(server), ctrl.Options(metrics_bind_address="0", cache=cache))
    ctrl.new_controller_managed_by(mgr).for_(LARGE).complete(Reader(mgr.cache))
    async with ctrl.setup_signal_handler() as stop:
        await mgr.start(stop)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
