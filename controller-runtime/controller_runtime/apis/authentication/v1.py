# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Requests for tokens, and reviews of tokens."""

from typing import TYPE_CHECKING

from controller_runtime import _ondemand
from controller_runtime.machinery import Struct

if TYPE_CHECKING:
    from .tokens import BoundObjectReference as BoundObjectReference
    from .tokens import TokenRequest as TokenRequest
    from .tokens import TokenRequestSpec as TokenRequestSpec
    from .tokens import TokenRequestStatus as TokenRequestStatus
    from .tokens import TokenReview as TokenReview
    from .tokens import TokenReviewSpec as TokenReviewSpec
    from .tokens import TokenReviewStatus as TokenReviewStatus
else:  # webhooks need only the user
    __getattr__, __dir__ = _ondemand.names(
        __name__,
        {
            ".tokens": (
                "BoundObjectReference",
                "TokenRequest",
                "TokenRequestSpec",
                "TokenRequestStatus",
                "TokenReview",
                "TokenReviewSpec",
                "TokenReviewStatus",
            ),
        },
    )


class UserInfo(Struct):
    username: str | None = None
    uid: str | None = None
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None
