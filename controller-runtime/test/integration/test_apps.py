# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The models of apps/v1 name the fields that a real API server publishes."""

import inspect
import json

import pytest

from controller_runtime.apis.apps import v1 as apps
from controller_runtime.client import LiveClient
from controller_runtime.machinery import Struct
from controller_runtime.rest import Request

pytestmark = pytest.mark.integration


async def test_every_field_is_one_that_the_api_server_serves_and_none_is_missing(
    live_client: LiveClient,
) -> None:
    request = Request("GET", "/openapi/v3/apis/apps/v1", headers={"Accept": "application/json"})
    answer = await live_client.transport.send(request)
    await answer.raise_for_status()
    published = json.loads(await answer.read())["components"]["schemas"]
    for name, model in inspect.getmembers(apps, inspect.isclass):
        if issubclass(model, Struct) and model.__module__ == apps.__name__:
            wire = {info.alias or attribute for attribute, info in model.model_fields.items()}
            assert wire == set(published[f"io.k8s.api.apps.v1.{name}"]["properties"]), name
