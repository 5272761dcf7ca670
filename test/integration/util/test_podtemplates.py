# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A real API server refuses the pod templates in whose records the check names fields, and accepts the others."""

import copy
from typing import Any

import pytest
from controller_runtime.client import LiveClient
from controller_runtime.machinery import GVK, unstructured
from controller_runtime.machinery.errors import ForbiddenError, InvalidError

from testkit.podtemplates import changed_job, templates

pytestmark = [pytest.mark.integration, pytest.mark.slow]
JOB = unstructured(GVK("batch", "v1", "Job"))
POD = unstructured(GVK("", "v1", "Pod"))


async def refused(client: LiveClient, data: dict[str, Any]) -> str:
    """Return why the API server refuses the Job or a pod of its template, or an empty text."""
    template = copy.deepcopy(data["spec"]["template"])
    template["metadata"] |= {"name": "job-0", "namespace": data["metadata"]["namespace"]}
    template["spec"]["serviceAccountName"] = template["spec"].get("serviceAccountName") or "default"
    try:
        await client.create(JOB.from_dict(data), dry_run=True)
        await client.create(POD.from_dict({"apiVersion": "v1", "kind": "Pod", **template}), dry_run=True)
    except InvalidError as error:
        return error.message
    except ForbiddenError:  # by an admission plugin, not by the validation
        return ""
    return ""


async def test_an_api_server_refuses_what_the_records_say_and_nothing_else(
    live_client: LiveClient, namespace: str
) -> None:
    wrong = []
    for changes, fields in templates().items():
        data = changed_job(changes)
        data["metadata"]["namespace"] = namespace
        reason = await refused(live_client, data)
        if bool(reason) != (fields != []):
            wrong.append((changes, fields, reason))
    assert not wrong
