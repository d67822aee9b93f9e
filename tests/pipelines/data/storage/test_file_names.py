"""Names of files made of values: one for each, readable where it can be, and safe."""

from itertools import product

import pytest

from pipelines.data.storage import file_name


@pytest.mark.parametrize("value", ["gpt-4o-2024-05-13", "org/model", "Qwen2.5_7B+x@1", "a/b/c"])
def test_a_plain_value_is_readable(value: str) -> None:
    assert file_name(value) == value.replace("/", "--")


def test_any_other_has_a_hash() -> None:
    values: list[str] = ["", ".", "..", "-rf", "/abs", "a b", "a--b", "a\nb", "\x00", "\ud800", "模型", "x" * 65, "~" * 9]
    for value in values:
        name = file_name(value)
        assert "~" in name
        assert name.isascii()
        assert name.isprintable()
        assert not {" ", "/"}.intersection(name)
        assert name[0] not in ".-"
        assert len(name) <= 80


def test_each_value_has_a_name_of_its_own() -> None:
    values = ["".join(parts) for length in range(5) for parts in product("a/-._~ ", repeat=length)]
    names = [*map(file_name, values)]
    assert len({*names}) == len(values)
    assert len({*map(file_name, names)}) == len(names)
