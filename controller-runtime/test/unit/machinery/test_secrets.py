# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Secrets of pydantic, which it writes as asterisks: no request may replace a stored value by them."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypeVar

import pydantic
import pytest
from pydantic import Field, SecretBytes, SecretStr
from typing_extensions import TypeAliasType, TypedDict

import controller_runtime as ctrl
from controller_runtime.apis.core.v1 import EnvVar, Secret
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Struct

S = TypeVar("S", bound=SecretStr)
V = TypeVar("V")


class Login(NamedTuple):
    password: SecretStr


class Model(pydantic.BaseModel):
    secret: SecretStr


@dataclasses.dataclass
class DataClass:
    secret: SecretStr


class Map(TypedDict):
    secret: SecretStr


@pytest.mark.parametrize(
    "annotation",
    [
        SecretStr,
        SecretBytes | None,
        pydantic.Secret[int],
        dict[str, list[SecretStr | None]],
        list[Model],
        DataClass | None,
        Map,
        NewType("Token", SecretStr),
        TypeAliasType("Tokens", list[SecretStr]),
        list[Login],
        S,
        tuple[SecretBytes, ...],
        Callable[[SecretStr], int],
    ],
)
def test_a_field_of_any_type_that_would_be_written_as_asterisks_is_refused(annotation: Any) -> None:
    with pytest.raises(TypeError, match=r"Made\.held is a Secret\S*, which is written as asterisks"):
        type("Made", (Struct,), {"__annotations__": {"held": annotation}, "__module__": __name__})


def test_a_computed_field_that_would_be_written_as_asterisks_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Computed\.token is a SecretStr, which is written as asterisks"):

        class Computed(Struct):
            @pydantic.computed_field
            def token(self) -> list[SecretStr] | None:
                return [SecretStr("a")]


class Later(Struct):
    token: "LaterToken"


class LaterComputed(Struct):
    name: str

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def token(self) -> "LaterToken":
        return LaterToken(self.name)


LaterToken = SecretStr


@pytest.mark.parametrize("kind", [Later, LaterComputed])
def test_a_type_that_is_declared_later_is_refused_with_the_first_object(kind: type[Struct]) -> None:
    with pytest.raises(TypeError, match=rf"{kind.__name__}\.token is a SecretStr, which is written as"):
        kind.from_dict({"name": "a", "token": "a"})


class Anything(Struct):
    held: Any = None


class Text(Struct):
    held: str = ""


class Valued(Struct, Generic[V]):
    held: V


@dataclasses.dataclass
class Data:
    held: Any


class Checked(Struct):
    held: str

    @pydantic.field_validator("held", mode="after")
    @classmethod
    def hide(cls, value: str) -> Any:
        return SecretStr(value)


def assigned() -> Struct:
    made: Any = EnvVar(name="PASSWORD")
    made.value = SecretStr("s3cret")
    return made  # type: ignore[no-any-return]


def in_a_stored_secret() -> Secret:
    made: Any = Secret(metadata=ctrl.ObjectMeta(name="s", namespace="n"))
    made.string_data = {"password": SecretStr("s3cret")}
    return made  # type: ignore[no-any-return]


def unstructured() -> ctrl.Object:
    kind = ctrl.unstructured(ctrl.GVK("example.com", "v1", "Login"))
    made = kind.from_dict({"metadata": {"name": "s", "namespace": "n"}})
    made["spec"] = {"users": [{"password": SecretBytes(b"s3cret")}]}
    return made


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: Anything(held=SecretStr("s3cret")), r"Anything\.held is a SecretStr"),
        (lambda: Anything(held={"a": [SecretStr("s3cret")]}), r"Anything\.held\.a\[0\] is a SecretStr"),
        (lambda: Anything(held=Data(SecretStr("s3cret"))), r"Anything\.held\.held is a SecretStr"),
        (lambda: Valued(held=SecretStr("s3cret")), r"Valued\.held is a SecretStr"),
        (lambda: Checked(held="s3cret"), r"Checked\.held is a SecretStr"),
        (assigned, r"EnvVar\.value is a SecretStr"),
        (in_a_stored_secret, r"Secret\.string_data\.password is a SecretStr"),
        (unstructured, r"Login\.spec\.users\[0\]\.password is a SecretBytes"),
    ],
)
def test_a_secret_in_any_value_is_an_error_when_it_is_written(make: Callable[[], Struct], path: str) -> None:
    with pytest.raises(TypeError, match=rf"^{path}, which is written as asterisks; use its get_secret_value"):
        make().to_json()


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("verb", ["create", "update", "patch", "apply", "add"])
async def test_no_verb_sends_the_asterisks(verb: str) -> None:
    stored = Secret(metadata=ctrl.ObjectMeta(name="s", namespace="n"), string_data={"password": "old"})
    client, wanted = FakeClient(), in_a_stored_secret()
    if verb != "create":
        await client.create(stored)
    calls: dict[str, Callable[[], Any]] = {
        "create": lambda: client.create(wanted),
        "update": lambda: client.update(wanted),
        "patch": lambda: client.patch(wanted, ctrl.merge_from(stored)),
        "apply": lambda: client.apply(wanted, field_owner="me", force=True),
    }
    with pytest.raises(TypeError, match="which is written as asterisks"):
        await calls[verb]() if verb in calls else client.add(wanted)
    assert all("*" not in str(call.body) for call in client.writes if verb != "patch")
    assert [found.string_data for found in await client.list(Secret)] != [{"password": "**********"}]


def test_texts_of_asterisks_and_secrets_that_are_written_by_a_serializer_pass() -> None:
    reveal = pydantic.PlainSerializer(lambda held: held.get_secret_value(), return_type=str)

    class Own(Struct):
        label: str
        first: SecretStr
        second: SecretStr = Field(default=SecretStr("hidden"), exclude=True)
        third: Annotated[SecretStr, reveal]

        @pydantic.computed_field
        def fourth(self) -> SecretStr:
            return SecretStr("d")

        @pydantic.field_serializer("first", "fourth")
        def written(self, value: SecretStr) -> str:
            return value.get_secret_value()

    class Whole(Struct):
        label: Literal["**********"]
        held: SecretStr

        @pydantic.model_serializer
        def written(self) -> dict[str, str]:
            return {"label": self.label, "held": self.held.get_secret_value()}

    stars = "*" * 10
    assert Text(held=stars).to_json() == b'{"held":"**********"}'
    own = Own.from_dict({"label": stars, "first": "a", "third": "c"})
    assert own.to_dict() == {"label": stars, "first": "a", "third": "c", "fourth": "d"}
    assert own.to_json() == b'{"label":"**********","first":"a","third":"c","fourth":"d"}'
    assert Whole(label="**********", held=SecretStr("b")).to_dict() == {"label": stars, "held": "b"}
    assert Whole(label="**********", held=SecretStr("b")).to_json().endswith(b'"held":"b"}')
