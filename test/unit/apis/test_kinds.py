# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The models have the field names of Kubernetes' API, and JobSet's have the JSON of Go."""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from controller_runtime.apis.apps import v1 as apps
from controller_runtime.apis.batch import v1 as batch
from controller_runtime.apis.core import v1 as core
from controller_runtime.apis.meta import v1 as meta
from controller_runtime.machinery import Struct, openapi
from controller_runtime.machinery.gojson import go_json

from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.scheme import default_scheme


def recorded() -> Iterator[tuple[str, type[Struct]]]:
    groups = ((apps, "apps.v1"), (core, "core.v1"), (batch, "batch.v1"), (meta, "meta.v1"))
    for module, group in groups:
        for name, kind in inspect.getmembers(module, inspect.isclass):
            full = f"{group}.{name}"
            if (
                issubclass(kind, Struct)
                and kind.__module__ == module.__name__
                and openapi.has_definition(full)
            ):
                yield full, kind


@pytest.mark.parametrize(("name", "kind"), [pytest.param(*each, id=each[0]) for each in recorded()])
def test_every_field_is_one_that_the_api_server_serves(name: str, kind: type[Struct]) -> None:
    wire = {info.alias or attribute for attribute, info in kind.model_fields.items()}
    assert wire <= set(openapi.definition(name).get("properties", {}))


def structs(kind: type[Struct]) -> Iterator[type[Struct]]:
    for each in kind.__subclasses__():
        yield each
        yield from structs(each)


def test_marks_for_go_s_json_name_fields_that_exist() -> None:
    default_scheme()
    for kind in structs(Struct):
        unknown = (kind.go_always | kind.go_pointers) - kind.model_fields.keys()
        assert not unknown, (kind.__qualname__, unknown)


def test_every_kind_knows_where_it_is_served() -> None:
    scheme = default_scheme()
    served = {(kind.gvk, kind.resource) for kind in scheme}
    assert len(served) == len(list(scheme))
    assert all(resource is None or resource.plural.islower() for _, resource in served)


def test_structs_are_written_as_go_writes_them() -> None:
    recorded = json.loads((Path(__file__).parent / "testdata" / "jobset_go.json").read_text())
    assert len(recorded) == 9
    for data, want in recorded:
        assert go_json(JobSetSpec.from_dict(data)) == want
