# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import pytest

from pkg import features


@pytest.mark.parametrize(
    ("settings", "enabled"),
    [
        pytest.param({}, False, id="alpha features are off"),
        pytest.param({"TrainJobStatus": True}, True, id="by its own gate"),
        pytest.param({"AllAlpha": True}, True, id="by the gate of its stage"),
        pytest.param({"AllBeta": True}, False, id="not by the gate of another stage"),
        pytest.param({"AllAlpha": True, "TrainJobStatus": False}, False, id="its own gate counts first"),
        pytest.param({"TrainJobStatus": False, "AllAlpha": True}, False, id="also if it was set before"),
    ],
)
def test_a_feature_is_enabled(settings: dict[str, bool], enabled: bool) -> None:
    assert features.resolve(settings).enabled(features.TRAIN_JOB_STATUS) is enabled


def test_an_unknown_gate_is_named() -> None:
    with pytest.raises(
        features.UnknownFeatureGateError, match="unrecognized feature gate: Nope; the gates are"
    ):
        features.resolve({"TrainJobStatus": True, "Nope": False})
