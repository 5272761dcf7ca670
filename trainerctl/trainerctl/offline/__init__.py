# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Predicts, for objects in files, the results of the manager and of an API server with Trainer's CRDs."""

TYPE_CHECKING = False
if TYPE_CHECKING:  # the exported modules; importing one does not load the others
    from . import inputfiles as inputfiles
    from . import podfindings as podfindings
    from . import schema as schema
    from . import stored as stored
