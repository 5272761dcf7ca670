# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Helpers shared by the packages above."""

TYPE_CHECKING = False
if TYPE_CHECKING:  # the public modules; importing one does not load the others
    from . import generations as generations
    from . import trainjob as trainjob
