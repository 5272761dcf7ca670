# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The controller under test: Greetings get the label ``example.com/language`` that their spec names."""

import controller_runtime as ctrl

GREETING = ctrl.unstructured(ctrl.GVK("example.com", "v1", "Greeting"))
LABEL = "example.com/language"


class Labeller:
    """Labels Greetings."""

    def __init__(self, client: ctrl.Client) -> None:
        self.client = client

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        try:
            old = await self.client.get(GREETING, request)
        except ctrl.NotFoundError:
            return ctrl.Result()
        language = str(old.nested("spec", "language"))
        if old.labels.get(LABEL) != language:
            new = old.deep_copy()
            new.metadata.labels = {**old.labels, LABEL: language}
            await self.client.patch(new, ctrl.merge_from(old))
        return ctrl.Result()


def setup(mgr: ctrl.Manager) -> None:
    ctrl.new_controller_managed_by(mgr).for_(GREETING).complete(Labeller(mgr.client))
