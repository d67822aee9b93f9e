"""A prompt shows each turn and each response where it stands in it: a text like it elsewhere is another one."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.contracts.judge import Judge
from actors.records import Reason, Reasoning
from actors.rendering.chat_renderer import ChatRenderer
from actors.rendering.renderer import Renderer
from actors.reward_model import families
from actors.settings.replica import JudgeSettings, RenderSettings
from actors.settings.rubric import RubricSettings
from tests.support.examples import examples
from tests.support.judges import ANY_ROLE, judge_folder, judge_model, rendered
from tests.support.models import assistant, reason_of, renderer, request, system, tool, user, write_model

LINE = "{{ message.role }}: {{ message.content }}<|end|>"
TEMPLATE = "{{ bos_token }}{% for message in messages %}" + LINE + "{% endfor %}"
IS_CUT = "message.role == 'assistant' and '</think>' in message.content"
CUT = TEMPLATE.replace(
    "{{ message.content }}", "{{ message.content.split('</think>')[-1] if " + IS_CUT + " else message.content }}"
)
WITHOUT_TURN = TEMPLATE.replace(LINE, "{% if not (" + IS_CUT + ") %}" + LINE + "{% endif %}")
ODD = "{% if 'odd' in message.content and message.role in ('assistant', 'response_1', 'response_2', 'principle') %}"


def test_a_response_that_the_template_leaves_out_isnt_looked_for_in_the_context(tmp_path: Path) -> None:
    cases: list[tuple[str, str]] = [
        ("Write `</think>` to end.", "`</think>`"),
        ("Write it as `</think>`", "as `</think>`"),
        ("`</think>` ends it", "`</think>`"),
        ("Say: The tag </think> ends it.", "The tag </think> ends it."),
    ]
    templates: list[str] = [CUT, WITHOUT_TURN]
    for template in templates:
        for context, response in cases:
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            careful = renderer(write_model(folder / "model", template=template))
            good, bad, later = careful.render(
                [
                    request(user(context), to="It ends it."),
                    request(user(context), to=response),
                    request(user("Hi"), assistant("Hello"), user(context), to=response),
                ]
            )
            assert [reason_of(row) for row in (good, bad, later)] == [None, Reason.TEMPLATE_REFUSED, Reason.TEMPLATE_REFUSED]


@pytest.mark.parametrize("response", ["assistant", "user", ":", "Hi"])
def test_nor_among_the_words_of_the_template(tmp_path: Path, response: str) -> None:
    printed = "{{ message.content if message.content != '" + response + "' }}"
    careful = renderer(write_model(tmp_path / "model", template=TEMPLATE.replace("{{ message.content }}", printed)))
    assert reason_of(careful.render([request(user("Hi!"), to=response)])[0]) is Reason.TEMPLATE_REFUSED
    assert (
        reason_of(
            renderer(write_model(tmp_path / "plain", template=TEMPLATE)).render([request(user("Hi!"), to=response)])[0]
        )
        is None
    )


PIECES = st.lists(st.sampled_from(["Hi", "user", "assistant", ":", " ", "\n", "odd", "7", "."]), min_size=1, max_size=5).map(
    "".join
)


@given(context=PIECES.filter(str.strip), response=PIECES.filter(str.strip))
@examples(200)
def test_a_response_is_shown_or_refused_whatever_stands_before_it(
    silent_models: tuple[Renderer, Renderer], context: str, response: str
) -> None:
    prints, leaves_out = silent_models
    score_request = request(user(context), to=response)
    assert reason_of(prints.render([score_request])[0]) is None
    assert reason_of(leaves_out.render([score_request])[0]) is (Reason.TEMPLATE_REFUSED if "odd" in response else None)


@pytest.fixture(scope="module")
def silent_models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Renderer, Renderer]:
    """One that prints and trims every response, and one that prints none with "odd" in it."""
    folder = tmp_path_factory.mktemp("silent")
    trims = TEMPLATE.replace("message.content", "message.content | trim")
    silent = TEMPLATE.replace("{{ message.content }}", ODD + "{% else %}{{ message.content }}{% endif %}")
    return renderer(write_model(folder / "trims", template=trims)), renderer(write_model(folder / "odd", template=silent))


# Turns before the response.

CONVERSATION = (system("Be brief."), user("  Please say Hi\n"), assistant("Hi, please"), user("Say it again, please."))


def test_a_turn_that_the_template_changes_is_refused(tmp_path: Path) -> None:
    cases: list[tuple[str, bool]] = [
        ("message.content | trim", True),
        ("' ' ~ message.content ~ '\n\n'", True),
        ("message.content[:100]", True),
        ("message.content | replace('please', '')", False),
        ("message.content | replace('again', 'twice')", False),
        ("message.content.split('\n')[0]", True),
        ("message.content.split(',')[0]", False),
        ("message.content if loop.index0 % 4 < 3 else 'Hi'", False),
        ("message.content if 'again' not in message.content else ''", False),
    ]
    for printed, judged in cases:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        template = TEMPLATE.replace("message.content", printed)
        (row,) = renderer(write_model(folder / "model", template=template)).render([request(*CONVERSATION)])
        assert reason_of(row) is (None if judged else Reason.TEMPLATE_REFUSED)


def test_a_template_that_cuts_long_turns_judges_short_ones(tmp_path: Path) -> None:
    careful = renderer(
        write_model(tmp_path / "model", template=TEMPLATE.replace("message.content", "message.content[:100]"))
    )
    rows = careful.render([request(user("a" * length), to="Say it again, please.") for length in (99, 100, 101, 1000)])
    assert [reason_of(row) for row in rows] == [None, None, *[Reason.TEMPLATE_REFUSED] * 2]


@pytest.mark.parametrize("turns", ["messages[-4:]", "messages if messages | length < 5 else messages[:1] + messages[-2:]"])
def test_a_turn_that_the_template_leaves_out_is_refused(tmp_path: Path, turns: str) -> None:
    careful = renderer(write_model(tmp_path / "model", template=TEMPLATE.replace("in messages", f"in ({turns})")))
    short, whole = careful.render([request(user("Say it again, please.")), request(*CONVERSATION)])
    assert [reason_of(row) for row in (short, whole)] == [None, Reason.TEMPLATE_REFUSED]


def test_an_earlier_turn_may_lose_its_reasoning_but_nothing_else(tmp_path: Path) -> None:
    earlier = CUT.replace("if " + IS_CUT, "if not loop.last and " + IS_CUT)
    careful = renderer(write_model(tmp_path / "model", template=earlier), reasoning=Reasoning.KEEP)
    turns = ("<think>I add.</think>\n\n7", "7", "The tag </think> ends it.")
    rows = careful.render([request(user("Hi"), assistant(turn), user("And?")) for turn in turns])
    assert [reason_of(row) for row in rows] == [None, None, Reason.TEMPLATE_REFUSED]


def test_a_tools_turn_may_be_json(tmp_path: Path) -> None:
    as_json = "(message.content | tojson if message.role == 'tool' else message.content)"
    careful = renderer(write_model(tmp_path / "model", template=TEMPLATE.replace("message.content", as_json)))
    texts = ('{"sum": 7}', "7\n", "sieben ist größer")
    rows = careful.render([request(user("Hi"), assistant("I add."), tool(text), user("And?")) for text in texts])
    assert [reason_of(row) for row in rows] == [None] * 3


def test_a_system_turn_may_stand_behind_others(tmp_path: Path) -> None:
    last = (
        "{% if loop.index0 == messages | length - 2 and messages[0].role == 'system' %}{{ messages[0].content }} {% endif %}"
    )
    line = LINE.replace("{{ message.content }}", last + "{{ message.content }}")
    template = TEMPLATE.replace(LINE, "{% if message.role != 'system' %}" + line + "{% endif %}")
    (row,) = renderer(write_model(tmp_path / "model", template=template)).render([request(*CONVERSATION)])
    assert reason_of(row) is None


def test_a_judges_template_that_changes_a_turn_is_refused(tmp_path: Path) -> None:
    model = judge_model(judge_folder(tmp_path / "judge", ANY_ROLE.replace("content", "content | replace('odd', '')")), "r3")
    row, _ = rendered(model, request(user("Which is odd?"), to=("thing", "7")))
    assert {response.reason for response in row.responses} == {Reason.TEMPLATE_REFUSED}


# Judges.

QUESTION = user("Which is odd, an odd thing or 7?")


@pytest.fixture(scope="module")
def silent_judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A judge whose template prints nothing with "odd" in it but the conversation."""
    whole = "message.content"
    silent = ANY_ROLE.replace(whole, "('' if 'odd' in message.content and message.role != 'user' else message.content)")
    assert silent != ANY_ROLE
    return judge_folder(tmp_path_factory.mktemp("silent") / "judge", silent)


def test_each_of_two_responses_stands_in_its_place(silent_judge: Path) -> None:
    all_responses: list[tuple[str, str]] = [("odd", "7"), ("7", "odd"), ("odd", "an odd thing"), ("odd", "odd")]
    for family in ("genrm-boxed", "genrm-json"):
        for responses in all_responses:
            row, _ = rendered(judge_model(silent_judge, family), request(QUESTION, to=responses))
            assert (
                row.prompts == ()
                or [prompt.response_positions for prompt in row.prompts if len(prompt.response_positions) > 1] == []
            )
            row, _ = rendered(judge_model(silent_judge, family), request(QUESTION, to=("thing", "7")))
            assert [response.reason for response in row.responses] == [None, None]


def test_a_principle_stands_in_its_place(silent_judge: Path) -> None:
    model = judge_model(silent_judge, "genrm-json")
    for principle, reason in (("odd", Reason.TEMPLATE_REFUSED), ("Which", None)):
        row, _ = rendered(model, replace(request(QUESTION, to=("thing", "7")), principles=(principle,)))
        assert [response.reason for response in row.responses] == [reason] * 2


def rubric(prompt: str) -> Judge:
    settings = RubricSettings.model_validate({"prompt": prompt, "pattern": "Rating: ([0-9]+)", "low": 1, "high": 10})
    family = families()["rubric"]
    assert isinstance(family, Judge)
    return family.with_settings(JudgeSettings(rubric=settings))


def test_an_endpoints_prompt_that_leaves_the_response_out_is_refused() -> None:
    prompts = ChatRenderer(
        rubric("{{ conversation }}\nRate {% if 'odd' not in response %}{{ response }}{% endif %}."), RenderSettings()
    )
    reasons = [
        prompts.render([request(QUESTION, to=(text,))])[0].responses[0].reason for text in ("odd", "an odd thing", "7")
    ]
    assert reasons == [Reason.TEMPLATE_REFUSED, Reason.TEMPLATE_REFUSED, None]


@pytest.mark.parametrize(
    "prompt",
    [
        "{{ conversation }}\nIt has {{ response | length }} characters:\n{{ response }}",
        "{{ response | upper }} is {{ response }}",
        "{% if response | length > 3 %}It is long.{% endif %}{{ conversation }} {{ response }}",
    ],
)
def test_what_stands_before_a_response_may_depend_on_it(prompt: str) -> None:
    prompts = ChatRenderer(rubric(prompt), RenderSettings())
    for text in ("odd", "an odd thing", "7", "  7\n"):
        assert prompts.render([request(QUESTION, to=(text,))])[0].responses[0].reason is None
