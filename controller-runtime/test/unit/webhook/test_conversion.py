# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from typing import Any

import msgspec
import pytest

from controller_runtime import metrics, webhook
from controller_runtime.apis.apiextensions.v1 import CustomResourceDefinition
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import Object
from controller_runtime.serving import HTTPRequest, HTTPResponse
from ctrl_testkit.versions import Boat, BoatSpec, BoatV1alpha1, boat_crd

GROUP = "fleets.example.org"


class BoatV0(Object, group=GROUP, version="v0", kind="Boat", plural="boats"):
    """A version that is converted by functions instead of methods of its class."""

    oars: int | None = None


V0 = webhook.Spoke(
    BoatV0,
    to_hub=lambda boat: Boat(metadata=ObjectMeta(labels={"from": "v0"}), spec=BoatSpec(oars=boat.oars)),
    from_hub=lambda hub: BoatV0(oars=hub.spec.oars),
)


@pytest.fixture
def conversions() -> webhook.Conversions:
    made = webhook.Conversions()
    made.register(Boat, webhook.spoke_of(BoatV1alpha1), V0)
    return made


def boat(version: str, *, name: str = "b", **fields: Any) -> dict[str, Any]:
    metadata = {"namespace": "a", "name": name, "uid": "u", "labels": {"l": "1"}}
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Boat", "metadata": metadata, **fields}


def converted(conversions: webhook.Conversions, obj: dict[str, Any], version: str) -> dict[str, Any]:
    text = conversions.convert(msgspec.json.encode(obj), f"{GROUP}/{version}")
    decoded: dict[str, Any] = msgspec.json.decode(text)
    return decoded


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param(
            boat("v1alpha1", spec={"rig": "2"}), boat("v1", spec={"oars": 2}), id="from a spoke to the hub"
        ),
        pytest.param(
            boat("v1", spec={"sails": ["a", "b"]}), boat("v1alpha1", spec={"rig": "a,b"}), id="from the hub"
        ),
        pytest.param(boat("v1alpha1", spec={"rig": "2"}), boat("v0", oars=2), id="between spokes"),
        pytest.param(boat("v1", odd=[1]), boat("v1", odd=[1]), id="to its own version"),
    ],
)
def test_an_object_becomes_its_other_version_and_keeps_its_metadata(
    conversions: webhook.Conversions, given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    assert converted(conversions, given, wanted["apiVersion"].rpartition("/")[2]) == wanted


def test_metadata_that_a_converter_sets_is_its_own(conversions: webhook.Conversions) -> None:
    assert converted(conversions, boat("v0", oars=1), "v1")["metadata"] == {"labels": {"from": "v0"}}


@pytest.mark.parametrize(
    ("given", "wanted", "error"),
    [
        (boat("v2"), f"{GROUP}/v1", f"Boat a/b: no converter for {GROUP}/v2, Kind=Boat"),
        (boat("v1"), f"{GROUP}/v2", f"Boat a/b: no converter for {GROUP}/v2, Kind=Boat"),
        (boat("v1"), "other/v1", f"Boat a/b: cannot be converted from group '{GROUP}' to 'other'"),
        (
            boat("v1", spec={"oars": "2"}),
            f"{GROUP}/v0",
            "Boat a/b: spec.oars: Input should be a valid integer",
        ),
        (
            boat("v1alpha1", spec={"rig": "?"}),
            f"{GROUP}/v1",
            "Boat a/b: spec.rig: '?' is neither a number nor names",
        ),
        (
            boat("v0", odd=[{}] * 12_001),
            f"{GROUP}/v1",
            "Boat a/b: the object is too large: it has more than 12000 objects and lists",
        ),
        (boat("v1"), "a/b/c", "unexpected apiVersion: 'a/b/c'"),
        ([], f"{GROUP}/v1", "the object cannot be decoded: Expected `object`, got `array`"),
    ],
)
def test_an_error_names_the_object(
    conversions: webhook.Conversions, given: Any, wanted: str, error: str
) -> None:
    with pytest.raises(webhook.ConversionError) as raised:
        conversions.convert(msgspec.json.encode(given), wanted)
    assert str(raised.value) == error


def test_what_is_registered_is_checked() -> None:
    made = webhook.Conversions()
    with pytest.raises(ValueError, match="Lease is another kind"):
        made.register(Boat, webhook.Spoke(Lease, lambda _: Boat(), lambda _: Lease()))
    with pytest.raises(ValueError, match="version v0 is given twice"):
        made.register(Boat, V0, V0)
    with pytest.raises(ValueError, match="no convert_to_hub and no convert_from_hub"):
        webhook.spoke_of(BoatV0)
    made.register(Boat, V0)
    with pytest.raises(ValueError, match="is registered already"):
        made.register(Boat)
    with pytest.raises(ValueError, match=f"conversion of Boat.{GROUP}: no converter for v1alpha1$"):
        made.check_crd(CustomResourceDefinition.from_dict(boat_crd()))


async def ask(conversions: webhook.Conversions, *objects: Any, **changes: Any) -> HTTPResponse:
    request = {"uid": "x", "desiredAPIVersion": f"{GROUP}/v1", "objects": objects}
    review = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": request,
        "response": {"uid": "", "convertedObjects": None, "result": {"metadata": {}}},
        **changes,
    }
    headers = {"Content-Type": "application/json"}
    body = msgspec.json.encode(review)
    return await webhook.ConversionWebhook(conversions)(
        HTTPRequest(path="/convert", headers=headers, body=body)
    )


async def test_all_objects_of_a_review_are_converted_in_order(conversions: webhook.Conversions) -> None:
    large = boat("v1alpha1", name="large", spec={"rig": "a" * 40_000})
    answer = msgspec.json.decode((await ask(conversions, boat("v0", oars=1), large)).body)
    response = answer.pop("response")
    assert answer == {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
    assert (response["uid"], response["result"]) == ("x", {"status": "Success"})
    assert [each["spec"] for each in response["convertedObjects"]] == [{"oars": 1}, {"sails": ["a" * 40_000]}]


async def test_an_answer_names_every_object_that_failed_and_holds_none(
    conversions: webhook.Conversions,
) -> None:
    panics = metrics.CONVERSION_PANICS._value.get()
    odd = boat("v1alpha1", name="odd", spec={"rig": "?"})
    bug = boat("v1alpha1", name="bug", spec={"rig": "bug"})
    answer = msgspec.json.decode((await ask(conversions, odd, boat("v0", oars=1), bug)).body)["response"]
    message = "Boat a/odd: spec.rig: '?' is neither a number nor names; panic: RuntimeError: oops [recovered]"
    assert answer == {"uid": "x", "convertedObjects": [], "result": {"status": "Failed", "message": message}}
    assert metrics.CONVERSION_PANICS._value.get() - panics == 1


async def test_an_answer_names_at_most_20_objects_that_failed(conversions: webhook.Conversions) -> None:
    answer = msgspec.json.decode((await ask(conversions, *[boat("v2")] * 30)).body)["response"]
    assert answer["result"]["message"].count("no converter for") == 20


async def test_a_converter_that_returns_another_version_is_a_bug() -> None:
    conversions = webhook.Conversions()
    conversions.register(Boat, webhook.Spoke(BoatV0, lambda boat: boat, V0.from_hub))
    answer = msgspec.json.decode((await ask(conversions, boat("v0"))).body)["response"]
    text = f"panic: TypeError: Boat a/b: converter for {GROUP}/v1, Kind=Boat returned BoatV0 [recovered]"
    assert answer["result"]["message"] == text


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"apiVersion": "apiextensions.k8s.io/v2"}, 400, "body is not a ConversionReview of"),
        ({"request": None}, 400, "has no request"),
        (
            {"request": {"uid": "x" * 2000, "desiredAPIVersion": ""}},
            400,
            "uid of the ConversionReview is longer",
        ),
        ({"request": {"uid": 1}}, 400, "body is not a ConversionReview: "),
        ({"spare": [{}] * 100_000}, 413, "ConversionReview is too large: it has "),
    ],
)
async def test_a_body_that_is_not_a_conversion_review_is_answered_with_a_status(
    conversions: webhook.Conversions, changes: dict[str, Any], code: int, message: str
) -> None:
    answer = await ask(conversions, **changes)
    assert (answer.status, message in msgspec.json.decode(answer.body)["message"]) == (code, True)
