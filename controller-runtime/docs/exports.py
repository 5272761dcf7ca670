# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""For the reference: the public names of a package are those that it re-exports by ``from .x import y as y``."""

from typing import Any

import griffe


class Exports(griffe.Extension):
    """Marks re-exported names as the exports of their package."""

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        """Set the exports of a package that does not declare them."""
        if not mod.is_init_module or mod.exports:
            return
        mod.exports = [
            name
            for name, member in mod.members.items()
            if member.is_alias
            and not name.startswith("_")
            and member.target_path.startswith("controller_runtime.")
        ] + [
            name
            for name, member in mod.members.items()
            if not member.is_alias and not member.is_module and not name.startswith("_")
        ]
