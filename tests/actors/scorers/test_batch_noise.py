"""The noise of batching, out of rewards that were computed twice."""

import pytest

from actors.scorers.batch_noise import BatchNoise, largest_noise, noise_between


@pytest.mark.parametrize(
    ("rewards", "repeated", "expected"),
    [
        ([1.0, 2.0, -3.0], [1.5, 2.0, -3.25], BatchNoise(0.5, 3)),
        ([1.0, 2.0], [1.0, 4.0], BatchNoise(2.0, 2)),
        ([1.0, None, 3.0], [1.25, 9.0, None], BatchNoise(0.25, 1)),
        ([None], [1.0], None),
        ([], [], None),
    ],
)
def test_the_noise_is_the_largest_difference_of_what_has_both(
    rewards: list[float | None], repeated: list[float | None], expected: BatchNoise | None
) -> None:
    assert noise_between(rewards, repeated) == expected


def test_of_several_engines_it_is_the_largest_of_all_their_responses() -> None:
    assert largest_noise([BatchNoise(0.5, 3), BatchNoise(2.0, 1), BatchNoise(1.0, 2)]) == BatchNoise(2.0, 6)
    assert largest_noise([]) is None
