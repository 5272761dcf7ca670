# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The elector that a manager's options describe."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable

from controller_runtime import client, leaderelection, rest
from controller_runtime.machinery import NamespacedName

from .errors import ManagerError
from .options import Options


def new_elector(
    options: Options,
    config: rest.Config,
    client_: client.Client,
    observe: Callable[[str, str, str], None] | None,
) -> leaderelection.LeaderElector | leaderelection.ThreadedElector:
    """Return the elector of a manager.

    It renews the lease in a thread of its own where the credentials allow that, with ``observe`` called for each
    request; without ``observe``, and elsewhere, through ``client_``.

    Raises:
        ManagerError: the options are incomplete or contradict each other.
    """
    namespace = options.leader_election_namespace or config.namespace
    if not options.leader_election_id:
        raise ManagerError("leader election needs an id, the name of its lease")
    if not namespace:
        raise ManagerError(
            "leader election needs a namespace: none is set, and the process does not run in a pod"
        )
    timing = leaderelection.Timing(
        lease_duration=options.lease_duration,
        renew_deadline=options.renew_deadline,
        retry_period=options.retry_period,
    )
    key = NamespacedName(namespace, options.leader_election_id)
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    connect = leaderelection.connection(config, observe) if observe is not None else None
    try:
        if connect is None:
            return leaderelection.LeaderElector(client_, key, identity, timing)
        return leaderelection.ThreadedElector(connect, key, identity, timing)
    except leaderelection.InvalidTimingError as error:
        raise ManagerError(f"leader election: {error}") from error
