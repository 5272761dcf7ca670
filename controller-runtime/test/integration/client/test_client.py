# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Refusals of a real API server. ``test_alike.py`` has the calls whose results are the same in memory."""

import pytest

from controller_runtime import rest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.client import MERGE, LiveClient, raw_patch, with_field_validation
from controller_runtime.machinery import GVK, errors, unstructured

pytestmark = pytest.mark.integration


async def test_a_kind_that_is_not_served_is_no_absent_object(live_client: LiveClient, namespace: str) -> None:
    with pytest.raises(
        rest.NoKindMatchError, match=r'no matches for kind "Nothing" in version "example.org/v1"'
    ):
        await live_client.get(unstructured(GVK("example.org", "v1", "Nothing")), (namespace, "x"))


async def test_a_wrong_token_is_refused_in_one_line(rest_config: rest.Config) -> None:
    rest_config.credentials = rest.StaticToken("wrong")
    assert rest_config.tls is not None
    rest_config.tls = rest.TLSConfig(ca=rest_config.tls.ca)
    async with rest.Transport(rest_config) as transport:
        with pytest.raises(errors.UnauthorizedError, match=r"^Unauthorized$"):
            await LiveClient(transport).list(ConfigMap)


async def test_an_unknown_field_is_refused_where_that_is_asked_for(
    live_client: LiveClient, namespace: str
) -> None:
    strict = with_field_validation(live_client, "Strict")
    odd = ConfigMap.from_dict({"metadata": {"name": "odd", "namespace": namespace}, "colour": "red"})
    with pytest.raises(errors.BadRequestError, match='unknown field "colour"'):
        await strict.create(odd)
    await live_client.create(odd)
    with pytest.raises(errors.InvalidError, match='unknown field "colour"'):
        await strict.patch(odd, raw_patch(MERGE, b'{"colour": "red"}'))
