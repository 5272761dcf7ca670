# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Prometheus' text format, version 0.0.4, as prometheus_client writes it.

Its own writer is in a module that also contains HTTP servers and clients, and imports the libraries of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_SUFFIXES: Final = {"counter": "_total", "info": "_info"}
_TYPES: Final = {"info": "gauge", "stateset": "gauge", "gaugehistogram": "histogram", "unknown": "untyped"}
_APART: Final = ("_created", "_gcount", "_gsum")
"""Samples that the text format does not know as parts of a family; each kind becomes a gauge."""


class _OtherNameError(Exception):
    """A name has characters that the text format allows only in quotes."""


def render(registry: Collector) -> bytes:
    """Return the families of ``registry``."""
    families = list(registry.collect())
    try:
        return "".join(line for family in families for line in _family(family)).encode()
    except _OtherNameError:
        from prometheus_client.exposition import generate_latest

        return generate_latest(_Collected(families))


class _Collected(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _family(family: Metric) -> Iterator[str]:
    yield _head(family, _SUFFIXES.get(family.type, ""), _TYPES.get(family.type, family.type))
    apart: dict[str, list[str]] = {}
    for sample in family.samples:
        suffix = sample.name.removeprefix(family.name)
        if suffix in _APART and suffix != sample.name:
            apart.setdefault(suffix, []).append(_line(sample))
        else:
            yield _line(sample)
    for suffix in sorted(apart):
        yield _head(family, suffix, "gauge")
        yield from apart[suffix]


def _head(family: Metric, suffix: str, kind: str) -> str:
    name = f"{family.name}{suffix}"
    if not _NAME.fullmatch(name):
        raise _OtherNameError
    text = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _line(sample: Sample) -> str:
    if not _NAME.fullmatch(sample.name) or not all(map(_LABEL.fullmatch, sample.labels)):
        raise _OtherNameError
    labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(sample.labels.items()))
    time = "" if sample.timestamp is None else f" {int(float(sample.timestamp) * 1000)}"
    value: str = floatToGoString(sample.value)  # type: ignore[no-untyped-call]  # the library's own spelling of numbers
    return f"{sample.name}{labels and f'{{{labels}}}'} {value}{time}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
