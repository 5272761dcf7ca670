# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An admission policy for clusters that run pods as local processes: it warns about images that cannot run there.

The API server returns the warnings when a TrainJob is created, so every client shows them. Nothing is refused.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from controller_runtime.machinery import JSON

_API: Final = "admissionregistration.k8s.io/v1"
_NAME: Final = "images.local-cluster.trainer.kubeflow.org"
_HAS_IMAGE: Final = "has(object.spec.trainer) && has(object.spec.trainer.image)"
_IMAGE: Final = "object.spec.trainer.image"


def objects(images: Iterable[str], default: Path | None = None) -> list[dict[str, JSON]]:
    """Return the policy and its binding. ``images`` lists the images whose programs are known, as IMAGE=FOLDER.

    The programs of all other images are those of ``default``, by default the folder of this Python.
    """
    folder = str(default or Path(sys.executable).parent)
    known = "|".join(re.escape(each.partition("=")[0]) for each in images)
    is_known = f"{_IMAGE}.matches({json.dumps(f'^(?:{known})(?:[:@].*)?$')})" if known else "false"
    hint = (
        f" is not pulled: its command runs with the programs in {folder}; for others, use cluster up --image "
    )
    rules = [
        {
            "expression": f"!({_HAS_IMAGE}) || {is_known}",
            "messageExpression": f"'the image ' + {_IMAGE} + {json.dumps(hint)} + {_IMAGE} + '=FOLDER'",
        },
        {
            "expression": f"!({_HAS_IMAGE}) || has(object.spec.trainer.command)",
            "message": "the own program of an image cannot run: if the runtime sets no command either, no pod starts",
        },
    ]
    rule = {
        "apiGroups": ["trainer.kubeflow.org"],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["trainjobs"],
    }
    return [
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": _NAME},
            "spec": {
                "failurePolicy": "Ignore",
                "matchConstraints": {"resourceRules": [rule]},
                "validations": rules,
            },
        },
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": _NAME},
            "spec": {"policyName": _NAME, "validationActions": ["Warn"]},
        },
    ]
