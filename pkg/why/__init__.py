# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Explains why a TrainJob does not run, from a snapshot of its live objects.

Only ``reading``, which takes the snapshot, accesses a cluster; everything else is pure.
"""

from . import kinds as kinds
from . import liveobject as liveobject
from . import phase as phase
from . import snapshot as snapshot
from . import terminations as terminations
from .causes.containers import by_end as by_end
from .causes.containers import container_of as container_of
from .causes.containers import failed_containers as failed_containers
from .causes.containers import last_end as last_end
from .causes.expiry import deadline_of as deadline_of
from .causes.expiry import deletion_of as deletion_of
from .causes.queues import QUEUE_LABEL as QUEUE_LABEL
from .causes.queues import groups as groups
from .causes.references import runtime_of as runtime_of
from .causes.refusals import refused as refused
from .causes.statuses import removed as removed
from .causes.turns import PENDING as PENDING
from .causes.turns import places as places
from .diagnosis import State as State
from .diagnosis import Verdict as Verdict
from .diagnosis import diagnose as diagnose
from .finding import Finding as Finding
from .liveobject import LiveObject as LiveObject
from .rules import keep as keep
from .snapshot import Reference as Reference
from .snapshot import Snapshot as Snapshot

TYPE_CHECKING = False
if TYPE_CHECKING:  # it loads the client, which nothing else needs
    from . import reading as reading
