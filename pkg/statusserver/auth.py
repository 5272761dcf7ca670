# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Authorizes updates of a TrainJob's status.

Only the TrainJob's own pods may send updates, with the token that Kubernetes projects into the pods.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from . import tokens
from .issuer import Issuer
from .tokens import BoundObject, DeniedError
from .utils import token_audience

RequireOwner = Callable[[str, str, BoundObject], Awaitable[None]]
"""Raises DeniedError unless the pod belongs to the TrainJob with this namespace and name."""


class ProjectedServiceAccountTokenAuthorizer:
    """Accepts a token that the cluster issued for the TrainJob's audience and that is bound to a pod of the TrainJob.

    Upstream also accepts a token that is not bound to a pod, and a token that another pod of the namespace requested.
    """

    def __init__(
        self, issuer: Issuer, require_owner: RequireOwner, now: Callable[[], float] = time.time
    ) -> None:
        self._issuer = issuer
        self._require_owner = require_owner
        self._now = now

    async def authorize(self, header: str, namespace: str, train_job: str) -> None:
        """Check that the client may update the status of the TrainJob.

        Raises:
            DeniedError: the client may not update the status.
            IssuerError: the API server publishes no usable issuer.
            StatusError: the API server refused a request.
            RestError: the API server was unreachable.
        """
        token = tokens.parse(extract_raw_token(header))
        # The claims come first: a client without a token of this cluster must not cause requests.
        token.claims.require(token_audience(namespace, train_job), namespace, self._now())
        known = await self._issuer.known(token)
        if token.claims.iss != known.issuer:
            raise DeniedError("the token was not issued by this cluster")
        if not known.signed(token):
            raise DeniedError("the signature of the token is not valid")
        pod = token.claims.kubernetes.pod
        if pod is None or not pod.name or not pod.uid:
            raise DeniedError("the token is not bound to a pod")
        await self._require_owner(namespace, train_job, pod)


def extract_raw_token(header: str) -> str:
    """Return the token of an Authorization header with the scheme Bearer.

    The scheme may be in upper or lower case. Any amount of white space is allowed.

    Raises:
        DeniedError: the header does not hold exactly one bearer token.
    """
    words = header.split()
    if len(words) != 2 or words[0].lower() != "bearer":
        raise DeniedError("the request has no bearer token")
    return words[1]
