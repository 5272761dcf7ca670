# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Why a TrainJob does not run: a verdict from the live objects, without any access to a cluster.

``reading`` takes the snapshot; everything else is pure.
"""

from pkg.why.diagnosis import State as State
from pkg.why.diagnosis import Verdict as Verdict
from pkg.why.diagnosis import diagnose as diagnose
from pkg.why.finding import Finding as Finding
from pkg.why.finding import Severity as Severity
from pkg.why.snapshot import Reference as Reference
from pkg.why.snapshot import Snapshot as Snapshot
from pkg.why.things import Thing as Thing
