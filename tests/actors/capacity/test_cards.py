"""Cards by name and by memory, with no name read as another's."""

import pytest

from actors.capacity.cards import CARDS, find_card
from actors.errors import SettingsError


def test_names_are_read_however_they_are_spelled() -> None:
    for spelled, name in (
        ("h200", "H200"), ("NVIDIA H100 NVL", "H100-NVL"), ("H100", "H100"), ("H100 PCIe", "H100-PCIe"),
        ("rtx pro 6000", "RTX-PRO-6000"), ("RTX_6000_Ada", "RTX-6000-Ada"), ("80 GB", "H100"), ("141gb", "H200"),
    ):  # fmt: skip
        assert find_card(spelled) is CARDS[name], spelled


def test_a_size_is_in_decimal_or_binary_units_as_it_says() -> None:
    assert find_card("96GB").memory == 96e9
    assert find_card("22.5 GiB").memory == 22.5 * 2**30
    assert find_card("96GB").peak == {}
    for card in CARDS.values():
        assert 22e9 < card.memory < 300e9


@pytest.mark.parametrize("name", ["H100-SXM6", "RTX-6000", "0GB", "80", ""])
def test_a_name_that_could_be_several_or_none_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=r"gpu is .*; it may be A100, H100, .* or a GPU's memory, such as 96GB"):
        find_card(name)
