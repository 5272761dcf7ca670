# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The local cluster. It has a real control plane, JobSet, simulated GPU nodes and our manager, but no containers."""

TYPE_CHECKING = False
if TYPE_CHECKING:  # the exported modules; a container's shim, which has no site-packages, cannot load them
    from . import access as access
    from . import cluster as cluster
    from . import components as components
    from . import kai as kai
    from . import manifests as manifests
    from . import names as names
    from . import nodes as nodes
    from . import options as options
    from . import prometheus as prometheus
    from . import state as state
    from . import tools as tools
