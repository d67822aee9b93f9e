"""What stands around a prompt's ids, and where its reward is read."""

import pytest

from actors.errors import Rejected
from actors.rendering.prompt_writer import PromptFrame, check_encodable

BOS, REWARD, STEP, PADDING = 1, 90, 91, 92
FRAME = PromptFrame([BOS], [REWARD], STEP, PADDING)


def test_what_is_appended_stands_once() -> None:
    assert FRAME.around([BOS, 5]) == FRAME.around([BOS, 5, REWARD]) == [BOS, BOS, 5, REWARD]
    assert PromptFrame([], [], None, None).around([5]) == [5]


def test_a_cut_leaves_what_stands_before_and_the_end() -> None:
    assert FRAME.cut([BOS, BOS, 5, 6, 7, REWARD], 4) == [BOS, 6, 7, REWARD]


def test_steps_end_at_their_token_alone() -> None:
    assert FRAME.step_ends([5, STEP, 6, STEP]) == (1, 3)
    assert PromptFrame([], [], None, None).step_ends([5, STEP]) == ()


@pytest.mark.parametrize("ids", [[REWARD, 5, REWARD], [5, PADDING]], ids=["twice", "padding"])
def test_a_prompt_that_is_read_elsewhere_is_refused(ids: list[int]) -> None:
    FRAME.check([5, PADDING, REWARD])
    with pytest.raises(Rejected, match="template_refused"):
        FRAME.check(ids)


def test_half_a_character_cant_be_encoded() -> None:
    assert check_encodable("é🙂") == "é🙂"
    with pytest.raises(Rejected, match="lone_surrogate"):
        check_encodable("\ud800")
