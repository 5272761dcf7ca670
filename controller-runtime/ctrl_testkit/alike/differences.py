# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Known differences of the in-memory client; ``docs/testing-operators.md`` lists the same differences."""

from controller_runtime.apis.core.v1 import (
    Namespace,
)
from controller_runtime.client import Backend

from .world import Observation, config_map, observe, pod, strict, widget


async def namespaces_must_exist(c: Backend, ns: str) -> list[Observation]:
    """In memory, objects can be created in a namespace that does not exist, so tests need not create it."""
    return [await observe(c.create(config_map(f"{ns}-not")))]


async def namespaces_end_with_their_content(c: Backend, ns: str) -> list[Observation]:
    """In memory, no namespace controller runs: a namespace is deleted like any object, and its content stays."""
    return [await observe(c.remove(Namespace.from_dict({"metadata": {"name": ns}})))]


async def schemas_fill_in_defaults(c: Backend, ns: str) -> list[Observation]:
    """In memory, Kubernetes' own kinds have no schemas: no defaults are set."""
    made = await c.create(pod(ns))
    return [made.spec.restart_policy, made.status.phase]


async def schemas_have_rules(c: Backend, ns: str) -> list[Observation]:
    """In memory, the CEL rules of a schema are not evaluated."""
    return [await observe(c.create(strict(ns, spec={"size": 1, "odd": 2})))]


async def a_status_writer_owns_the_metadata_it_sends(c: Backend, ns: str) -> list[Observation]:
    """A server records a status writer as the owner of labels that the server does not store; in memory, the writer
    owns only the status.
    """
    await c.create(widget(ns))
    applied = widget(ns, status={"a": 1}, metadata={"labels": {"q": "1"}})
    await c.status.apply(applied, field_owner="one")
    return [await observe(c.apply(widget(ns, metadata={"labels": {"q": "2"}}), field_owner="two"))]
