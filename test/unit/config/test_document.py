# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import pytest

from pkg.config import document


def test_every_key_knows_its_line() -> None:
    doc = document.read(b"a:\n  b: 1\nc:\n- x: 2\n")
    assert doc.data == {"a": {"b": 1}, "c": [{"x": 2}]}
    assert doc.line(("a", "b")) == 2
    assert doc.line(("c", 0, "x")) == 4
    assert doc.line(("a", "missing")) == 1
    assert doc.line(("missing",)) is None


@pytest.mark.parametrize("text", [b"", b"# nothing\n", b"---\n"])
def test_an_empty_document_is_an_empty_map(text: bytes) -> None:
    assert document.read(text).data == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a: 1\nb: 2\na: 3\n", "line 3: a: key is given twice, before at line 1"),
        (b"a: {b: 1, b: 2}", "line 1: a.b: key is given twice, before at line 1"),
        (b'{"a": 1, "a": 2}', "line 1: a: key is given twice, before at line 1"),
        (b"- a\n", "line 1: a map is expected at the top"),
        (b"just words", "line 1: a map is expected at the top"),
        (b"a:\n  1: x\n", "line 2: a: a key is not a string"),
        (b"a: &x\n  b: *x\n", "line 1: a.b contains itself"),
        (b"a:\n  b: !!bool maybe\n", "line 2: a.b: 'maybe' is not a value of type bool"),
        (b"a:\n- !!int ''\n", "line 2: a[0]: '' is not a value of type int"),
        (b"a: !!float ''\n", "line 1: a: '' is not a value of type float"),
        (b"a: 2024-13-45\n", "line 1: a: '2024-13-45' is not a value of type timestamp"),
        (b"a: " + b"9" * 5_000, f"line 1: a: '{'9' * 60}' is not a value of type int"),
        (b"a: .nan\n", "line 1: a: '.nan' is not a finite number"),
        (b"a: -.inf\n", "line 1: a: '-.inf' is not a finite number"),
        (b"a: " + b"[" * 5_000 + b"]" * 5_000, "line 1: nested more than 100 levels deep"),
        (
            b"a: &a [x, x, x, x, x, x, x, x, x]\n"
            + b"".join(
                b"%c: &%c [%s]\n" % (98 + n, 98 + n, b", ".join([b"*%c" % (97 + n)] * 9)) for n in range(8)
            ),
            "more than 100,000 keys and items; do aliases repeat them?",
        ),
    ],
)
def test_what_is_no_clean_document_is_refused_with_its_line(text: bytes, message: str) -> None:
    with pytest.raises(document.DocumentError) as caught:
        document.read(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "line"), [(b"a: [1\n", "line 2"), (b"a: 1\n---\nb: 2\n", "line 2"), (b"a: b: c", "line 1"), (b"a: !!python/object:os.system x", "line 1"), (b"a:\n\t- b", "line 2")]
)  # fmt: skip
def test_bad_syntax_is_one_line_that_says_where(text: bytes, line: str) -> None:
    with pytest.raises(document.DocumentError, match=f"^{line}: ") as caught:
        document.read(text)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(document.DocumentError):
        document.read(b"a: \xff\xfe\x00")


def test_a_path_reads_as_people_write_it() -> None:
    assert document.render_path(("a", 0, "b")) == "a[0].b"
    assert (
        document.render_path(("controller", "groupKindConcurrency", "TrainJob.x"))
        == 'controller.groupKindConcurrency["TrainJob.x"]'
    )
