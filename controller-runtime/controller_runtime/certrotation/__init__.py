# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Certificates of webhooks that the program makes itself: stored in a Secret, trusted by the API server, renewed.

:func:`add_to_manager` is the usual way to use this package. The names are loaded when first used: most programs need
neither keys nor Secrets.
"""

from typing import TYPE_CHECKING

from controller_runtime import _ondemand

if TYPE_CHECKING:
    from .certificates import Certificates as Certificates
    from .certificates import Metrics as Metrics
    from .certificates import add_to_manager as add_to_manager
    from .cluster import Cluster as Cluster
    from .cluster import Options as Options
    from .cluster import connect as connect
    from .pki import FORMER as FORMER
    from .pki import Material as Material
    from .pki import Subjects as Subjects
    from .pki import issue as issue
else:
    __getattr__, __dir__ = _ondemand.names(
        __name__,
        {
            "certificates": ("Certificates", "Metrics", "add_to_manager"),
            "cluster": ("Cluster", "Options", "connect"),
            "pki": ("FORMER", "Material", "Subjects", "issue"),
        },
    )
