"""What tells prompts apart, wherever responses to one prompt are compared."""

from actors.records import ScoreRequest
from tests.support.models import assistant, system, user


def test_prompts_differ_by_who_says_what_and_by_where_a_turn_ends() -> None:
    contexts = [
        (),
        (user("ab"),),
        (system("ab"),),
        (user("a"), user("b")),
        (user("a"), assistant("b")),
        (user("b"), user("a")),
        (user("a"), user("b"), user("")),
        (user("auser:1:b"),),
    ]
    score_requests = [ScoreRequest(context, ()) for context in contexts]
    score_requests += [ScoreRequest((user("a"),), (), principles) for principles in [("b",), ("b", "c"), ("bc",)]]
    assert len({score_request.prompt_hash for score_request in score_requests}) == len(score_requests)


def test_a_prompt_has_the_same_hash_on_every_machine() -> None:
    """Another one would part the responses of a run that goes on from those that it has."""
    assert (
        ScoreRequest((system("Be brief."), user("3 + 4?")), (), ("correctness",)).prompt_hash
        == "9f7b7c6a09167513ddcf609c674f8e63"
    )
