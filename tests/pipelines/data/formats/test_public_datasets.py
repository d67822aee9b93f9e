"""Public data sets are read by themselves, or by the settings that their entries name, or refused with the reason.

A row has the published ones' fields of text, turns and lists, with texts of our own. It comes as a run gets it: parsed from
a line of JSON, and as the objects of Python that a Parquet file gives. `docs/guides/public-datasets.md` has more of them as
a table for users; of several that are read alike one stands here.
"""

import datetime
import functools
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from actors.errors import UserError
from actors.records import Reason
from actors.reward_model import RewardModel, resolve_model
from actors.settings.replica import ModelSettings, RenderSettings
from pipelines.data.corpus.python_rows import python_rows
from pipelines.data.formats import RowRequests, parse
from pipelines.folders.run_folder.columns import Columns
from pipelines.run.prepare.choose_shape import preview_of
from pipelines.run.prepare.preview import check_preview
from pipelines.run.prepare.score_requests import Preparation
from pipelines.settings.run_settings import RowSettings
from tests.support.parsed_rows import account, contexts, judged, refused

Turns = Sequence[tuple[str, str]]
SUM, FOUR = ("user", "What is 2 + 2?"), ("assistant", "It is 4.")
TALK = [SUM, FOUR, ("user", "And 3 + 4?")]
BRIEF = ("system", "Be brief.")
UNKNOWN = "I don't know."


@dataclass(frozen=True)
class PublicSet:
    """A data set by a row: its contexts, its responses by name and those rejected; or a part of the message that refuses it.

    With `prompts`, the row is a prompt for a policy.
    """

    name: str
    row: dict[str, Any]
    contexts: Sequence[Turns] = ()
    responses: Mapping[str, str] = field(default_factory=dict)
    rejected: Mapping[str, Reason] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    refusal: str = ""
    prompts: bool = False


def user(text: object, **more: object) -> dict[str, Any]:
    """A turn of the user's, with the content first, as on the Hub."""
    return {"content": text, "role": "user", **more}


def reply(text: object, **more: object) -> dict[str, Any]:
    return {"content": text, "role": "assistant", **more}


def share(*turns: tuple[str, str], **more: object) -> list[dict[str, Any]]:
    """Turns in ShareGPT's form."""
    return [{"from": name, "value": text, **more} for name, text in turns]


def texts(names: str) -> dict[str, str]:
    """Fields that hold some text, by their names."""
    return dict.fromkeys(names.split(), "x")


def pair_of(first: str, second: str) -> dict[str, str]:
    """The two answers to the sum, by the names of their responses."""
    return {first: "It is 4.", second: UNKNOWN}


PAIR = pair_of("chosen", "rejected")
ASKED = [user("What is 2 + 2?")]
ANSWERED, DUNNO = [*ASKED, reply("It is 4.")], [*ASKED, reply(UNKNOWN)]
ASKED_AGAIN = [*ANSWERED, user("And 3 + 4?")]
TWO_TURNS, LATER_DUNNO = [*ASKED_AGAIN, reply("It is 7.")], [*ASKED_AGAIN, reply(UNKNOWN)]
LATER_PAIR = {"chosen": "It is 7.", "rejected": UNKNOWN}
BRIEF_TURNS = [{"role": "system", "content": "Be brief."}, *ANSWERED]
PARTS = {"image": None, "mimeType": None}
WHEN = datetime.datetime(2023, 4, 9, 0, 2, 53, tzinfo=datetime.UTC)
ATTRIBUTES = {"helpfulness": 4, "correctness": 4, "coherence": 4, "complexity": 1, "verbosity": 1}
EMBEDDED = "What is 2 + 2?\n<extra_id_1>Assistant\nIt is 4.\n<extra_id_1>User\nAnd 3 + 4?"
HUMAN = "\n\nHuman: What is 2 + 2?\n\nAssistant: It is 4.\n\nHuman: And 3 + 4?\n\nAssistant:"
CHATML = "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n"
ONE = {"final": "It is 4."}
LATER = {"final": "It is 7."}
TREE = {
    **texts("message_tree_id tree_state"),
    "prompt": {
        "text": "What is 2 + 2?",
        "role": "prompter",
        "replies": [{"text": text, "role": "assistant", "rank": 0} for text in ("It is 4.", UNKNOWN)],
    },
}
VERL = {
    **texts("data_source ability"),
    "prompt": ASKED,
    "reward_model": {"ground_truth": "4", "style": "rule"},
    "extra_info": {"answer": "#### 4", "index": 0, "question": "What is 2 + 2?"},
}
WILD = {
    **texts("conversation_hash model language state country hashed_ip"),
    "timestamp": WHEN,
    "conversation": [turn | {"country": None, "timestamp": WHEN, "toxic": False} for turn in TWO_TURNS],
    "turn": 2,
    "openai_moderation": [{"categories": {"self-harm": False}, "flagged": False}] * 2,
    "header": {"user-agent": "Mozilla/5.0"},
}


def parts(*turns: dict[str, Any]) -> list[dict[str, Any]]:
    """Turns with content as a list of parts, all of which have all columns."""
    return [turn | {"content": [{"type": "text", "text": turn["content"], **PARTS}]} for turn in turns]


def v1(*turns: dict[str, Any]) -> list[dict[str, Any]]:
    """Turns in the form of LLaMA-Factory's next version."""
    return [
        {"role": turn["role"], "content": [{"type": "text", "value": turn["content"]}], "loss_weight": 1.0} for turn in turns
    ]


def rollout(*output: dict[str, Any]) -> dict[str, Any]:
    """A row of NeMo Gym."""
    turns = [{**turn, "type": "message", "phase": None} for turn in BRIEF_TURNS[:2]]
    return {
        "responses_create_params": {"background": None, "input": turns, "tools": []},
        "response": {"id": "resp_0", "error": None, "output": list(output)},
        "reward": 0.0,
        **texts("ground_truth question answer"),
        "messages": BRIEF_TURNS[:2],
        "tools": [],
    }


THOUGHT = {"id": "rs_0", "summary": [{"text": "Two and two.", "type": "summary_text"}], "type": "reasoning"}
SAID_ITEM = {"content": [{"text": "It is 4.", "type": "output_text"}], "role": "assistant", "type": "message"}
ROLLOUT = {"prompt_column": "responses_create_params.input", "response_column": ["response.output[-1]"]}

CHAT_LOGS = [
    PublicSet("WildChat-1M", WILD, [TALK], LATER),
    PublicSet(
        "WildChat-1M, every turn",
        WILD,
        [[SUM], TALK],
        {"turn[1]": "It is 4.", "turn[3]": "It is 7."},
        options={"turns": "all"},
    ),
    PublicSet(
        "WildChat-1M, an empty answer",
        WILD | {"conversation": [*ASKED, reply("")]},
        refusal="empty_content",
    ),
    PublicSet(
        "Chatbot Arena conversations",
        {
            **texts("question_id model_a model_b winner judge language"),
            "conversation_a": TWO_TURNS,
            "conversation_b": [*DUNNO, user("And 3 + 4?"), reply("It is 7.")],
            "turn": 2,
            "toxic_chat_tag": {"roberta-large": {"flagged": False}},
        },
        [TALK, [SUM, ("assistant", UNKNOWN), TALK[2]]],
        {"conversation_a": "It is 7.", "conversation_b": "It is 7."},
    ),
    PublicSet(
        "MT-bench's human judgments, a vote on the first of two turns",
        {
            "question_id": 81,
            **texts("model_a model_b winner judge"),
            "conversation_a": TWO_TURNS,
            "conversation_b": LATER_DUNNO,
            "turn": 1,
        },
        [[SUM]],
        {"conversation_a": "It is 4.", "conversation_b": "It is 4."},
    ),
    PublicSet(
        "Chatbot Arena, with conversations as texts",
        {
            **texts("id model_a model_b winner full_conversation"),
            "conversation_a": json.dumps(ANSWERED),
            "conversation_b": json.dumps(DUNNO),
        },
        [[SUM]],
        {"conversation_a": "It is 4.", "conversation_b": UNKNOWN},
    ),
    PublicSet(
        "Arena human preference 140k",
        {
            **texts("id model_a model_b winner evaluation_session_id language"),
            "conversation_a": parts(*ANSWERED),
            "conversation_b": [
                user([{"type": "image", "text": None, "image": "iVBORw0KGgo="}]),
                *parts(reply("A cat.")),
            ],
            "timestamp": WHEN,
        },
        [[SUM]],
        {"conversation_a": "It is 4."},
        {"conversation_b": Reason.CONTENT_NOT_TEXT},
    ),
    PublicSet(
        "Arena human preference 55k",
        {
            **texts("model_a model_b"),
            "prompt": '["What is 2 + 2?"]',
            "response_a": '["It is 4."]',
            "response_b": '["I don\'t know."]',
        },
        options={"prompt_column": "prompt", "response_column": ["response_a", "response_b"]},
        refusal="(?i)json",
    ),
]

PREFERENCES = [
    PublicSet(
        "UltraFeedback",
        {
            **texts("source"),
            "instruction": "What is 2 + 2?",
            "models": ["m", "n"],
            "completions": [
                {**texts("critique model principle"), "response": text, "custom_system_prompt": "Be truthful."}
                for text in ("It is 4.", "")
            ],
            "correct_answers": ["None"],
            "incorrect_answers": ["None"],
        },
        [[SUM]],
        {"completions[0]": "It is 4."},
        {"completions[1]": Reason.EMPTY_CONTENT},
    ),
    PublicSet(
        "UltraFeedback binarized",
        {
            "prompt": "What is 2 + 2?",
            "prompt_id": "f0e3",
            "chosen": TWO_TURNS,
            "rejected": LATER_DUNNO,
            "messages": TWO_TURNS,
            "score_chosen": 8.5,
        },
        [TALK],
        LATER_PAIR,
    ),
    PublicSet("HH-RLHF", {"chosen": f"{HUMAN} It is 7.", "rejected": f"{HUMAN} {UNKNOWN}"}, [TALK], LATER_PAIR),
    PublicSet(
        "HH-RLHF, split into prompt and answers as TRL's examples do",
        {"prompt": HUMAN, "chosen": " It is 7.", "rejected": f" {UNKNOWN}"},
        [TALK],
        LATER_PAIR,
    ),
    PublicSet(
        "Nectar",
        {
            "prompt": f"{HUMAN} ",
            "answers": [{"answer": text, "model": "m", "rank": 1.0} for text in ("It is 7.", UNKNOWN)],
            "source": ["lmsys-chat-1m"],
        },
        [TALK],
        {"response[0]": "It is 7.", "response[1]": UNKNOWN},
        options={"prompt_column": "prompt", "response_column": ["answers[].answer"]},
    ),
    PublicSet("HelpSteer, HelpSteer2", {"prompt": EMBEDDED, "response": "It is 7.", **ATTRIBUTES}, [TALK], LATER),
    PublicSet(
        "HelpSteer2, preference",
        {
            "prompt": "What is 2 + 2?",
            **pair_of("response_1", "response_2"),
            **texts("split preference_statement preference_elaboration"),
            "preference_strength": -2,
            "three_most_similar_preferences": [{"statement": "@Response 1", "strength": -2}],
        },
        [[SUM]],
        pair_of("response_1", "response_2"),
    ),
    PublicSet(
        "HelpSteer3, preference and feedback",
        {
            **texts("domain language"),
            "context": ASKED,
            **pair_of("response1", "response2"),
            "overall_preference": -2,
            "individual_preference": [{"score": -2, "reasoning": "It answers."}],
            "feedback1": ["The response is perfectly helpful."],
        },
        [[SUM]],
        pair_of("response1", "response2"),
    ),
    PublicSet(
        "HelpSteer3, principle",
        {**texts("domain language fulfilment"), "context": ASKED, "response": "It is 4.", "principle": "Does it answer?"},
        [[SUM]],
        ONE,
    ),
    PublicSet(
        "Tulu 3 preference mixture",
        {
            **texts("id source"),
            "prompt": "What is 2 + 2?",
            "chosen": BRIEF_TURNS,
            "rejected": [BRIEF_TURNS[0], *DUNNO],
        },
        [[BRIEF, SUM]],
        PAIR,
    ),
    PublicSet("Skywork-Reward-Preference-80K", {"chosen": ANSWERED, "rejected": DUNNO, "source": "x"}, [[SUM]], PAIR),
    PublicSet(
        "SHP",
        {
            **texts("post_id domain c_root_id_A c_root_id_B"),
            "history": "What is 2 + 2?",
            **pair_of("human_ref_A", "human_ref_B"),
            "labels": 1,
        },
        [[SUM]],
        pair_of("human_ref_A", "human_ref_B"),
        options={"prompt_column": "history", "response_column": ["human_ref_A", "human_ref_B"]},
    ),
]

OPEN_ASSISTANT = [
    PublicSet(
        "OASST1 and OASST2, a message a row",
        {**texts("message_id parent_id role lang"), "text": "It is 4.", "emojis": {"name": ["+1"], "count": [5]}},
        refusal="no known shape",
    ),
    PublicSet("OASST1 and OASST2, a tree a line", TREE, refusal="no known shape"),
    PublicSet(
        "OASST1 and OASST2, the first replies of a tree",
        TREE,
        [[SUM]],
        pair_of("response[0]", "response[1]"),
        options={"prompt_column": "prompt.text", "response_column": ["prompt.replies[].text"]},
    ),
    PublicSet("OpenAssistant's best threads in ChatML", {"text": f"{CHATML}It is 4.<|im_end|>\n"}, [[SUM]], ONE),
    PublicSet(
        "OpenAssistant-Guanaco",
        {"text": "### Human: What is 2 + 2?### Assistant: It is 4.### Human: And 3 + 4?### Assistant: It is 7."},
        [TALK],
        LATER,
    ),
]

SYNTHETIC = [
    PublicSet(
        "SmolTalk2, SFT",
        {
            "messages": ANSWERED,
            "chat_template_kwargs": {
                "custom_instructions": "Be brief.",
                "enable_thinking": False,
                "python_tools": [],
                "xml_tools": [],
            },
            "source": "x",
        },
        [[BRIEF, SUM]],
        ONE,
    ),
    PublicSet(
        "SmolTalk2, preferences",
        {
            "prompt": SUM[1],
            "chosen": ANSWERED,
            "rejected": DUNNO,
            "chat_template_kwargs": {"custom_instructions": "Be brief."},
        },
        [[BRIEF, SUM]],
        PAIR,
    ),
    PublicSet(
        "Toucan-1.5M, whose columns are texts",
        {
            **texts("uuid subset_name question target_tools metadata"),
            "messages": json.dumps(BRIEF_TURNS),
            "available_tools": "[]",
        },
        [[BRIEF, SUM]],
        ONE,
    ),
    PublicSet(
        "SWE-agent-trajectories",
        {
            "instance_id": "x",
            "target": True,
            "trajectory": [
                {"cutoff_date": "01.01.2023", "mask": False, "role": "system", "system_prompt": "Be brief.", "text": None},
                {"cutoff_date": None, "mask": False, "role": "user", "system_prompt": None, "text": SUM[1]},
                {"cutoff_date": None, "mask": False, "role": "ai", "system_prompt": None, "text": FOUR[1]},
            ],
        },
        [[BRIEF, SUM]],
        ONE,
        options={"conversation_column": ["trajectory"]},
    ),
    PublicSet(
        "Magpie, multi-turn",
        {
            **texts("uuid model task_category intent language"),
            "gen_input_configs": {"temperature": 1.0, "seed": None},
            "instruction": "What is 2 + 2?",
            "response": "It is 4.",
            "instruction_2": "And 3 + 4?",
            "response_2": "It is 7.",
            "conversations": share(*zip(("human", "gpt") * 2, [text for _, text in TALK] + ["It is 7."], strict=True)),
            "other_task_category": [],
        },
        [TALK],
        LATER,
    ),
    PublicSet(
        "Magpie, DPO",
        {
            **texts("uuid intent"),
            "instruction": "What is 2 + 2?",
            "responses": ["It is 4.", "Four.", UNKNOWN],
            "rewards_armorm": [{"score": 0.2}],
            "chosen": ANSWERED,
            "rejected": DUNNO,
        },
        [[SUM]],
        PAIR,
    ),
    PublicSet(
        "OpenHermes 2.5",
        {
            **dict.fromkeys(("topic", "model_name", "category", "language", "id", "title", "hash", "source")),
            "conversations": share(("human", "What is 2 + 2?"), ("gpt", "It is 4."), weight=None),
            "system_prompt": "Be brief.",
            "custom_instruction": True,
        },
        [[BRIEF, SUM]],
        ONE,
    ),
    PublicSet(
        "A feedback export of Argilla",
        {
            "prompt": "What is 2 + 2?",
            "response": "It is 4.",
            "quality": [{"user_id": None, "value": 5, "status": "submitted"}],
            "quality-suggestion": None,
            "metadata": "{}",
        },
        [[SUM]],
        ONE,
    ),
    PublicSet(
        "Capybara DPO by distilabel",
        {
            **texts("source original_response chosen_model rejected_model"),
            "conversation": [{"input": "What is 2 + 2?", "output": "It is 4."}],
            "generation_prompt": ["<s>[INST] What is 2 + 2? [/INST]"],
            "new_generations": ["It is 7.", UNKNOWN],
            "prompt": "And 3 + 4?",
            "chosen": TWO_TURNS,
            "rejected": LATER_DUNNO,
        },
        [TALK],
        LATER_PAIR,
    ),
    PublicSet(
        "Intel Orca DPO by distilabel",
        {
            "system": "Be brief.",
            "input": "What is 2 + 2?",
            **PAIR,
            "generations": ["It is 4.", UNKNOWN],
            "labelling_prompt": [user("Please rate these responses.")],
            **texts("raw_labelling_response rationale original_chosen original_rejected"),
        },
        [[BRIEF, SUM]],
        PAIR,
        options={"prompt_column": "input", "response_column": ["chosen", "rejected"]},
    ),
    PublicSet(
        "Intel Orca DPO in ChatML",
        {
            "prompt": f"<|im_start|>system\nBe brief.<|im_end|>\n{CHATML}",
            "chosen": "It is 4.<|im_end|>",
            "rejected": f"{UNKNOWN}<|im_end|>",
        },
        [[BRIEF, SUM]],
        PAIR,
    ),
    PublicSet(
        "A preference export of distilabel",
        {
            **texts("instruction prompt_id model_name"),
            "generations": ["It is 4.", UNKNOWN],
            "distilabel_metadata": {"raw_input_0": [user("Rate these.")]},
            "types": [None, None],
            "prompt": "What is 2 + 2?",
            "chosen": ANSWERED,
            "rejected": DUNNO,
        },
        [[SUM]],
        PAIR,
    ),
    PublicSet(
        "Generations of distilabel",
        {"instruction": "What is 2 + 2?", "generations": ["It is 4.", None], "generation_models": ["m", "n"]},
        [[SUM]],
        {"response[0]": "It is 4."},
        {"response[1]": Reason.EMPTY_CONTENT},
        options={"prompt_column": "instruction", "response_column": ["generations"]},
    ),
]

TRAINERS = [
    PublicSet("ms-swift, SFT and KTO", {"messages": BRIEF_TURNS, "label": False}, [[BRIEF, SUM]], ONE),
    PublicSet(
        "ms-swift, DPO with a rejected response",
        {"messages": BRIEF_TURNS, "rejected_response": UNKNOWN},
        [[BRIEF, SUM]],
        PAIR,
    ),
    PublicSet(
        "ms-swift, DPO with rejected messages",
        {"messages": TWO_TURNS, "rejected_messages": DUNNO},
        [TALK, [SUM]],
        {"chosen": "It is 7.", "rejected": UNKNOWN},
    ),
    PublicSet("ms-swift, GRPO", {"messages": ASKED_AGAIN, "solution": "7"}, refusal="no_final_assistant"),
    PublicSet(
        "ms-swift, query and response with a history",
        {"query": "And 3 + 4?", "response": "It is 7.", "history": [["What is 2 + 2?", "It is 4."]]},
        refusal="no known shape",
    ),
    PublicSet(
        "ms-swift's ShareGPT",
        {"system": "Be brief.", "conversation": [{"human": "What is 2 + 2?", "assistant": "It is 4."}]},
        refusal="no known shape",
    ),
    PublicSet(
        "LLaMA-Factory, alpaca, SFT and KTO",
        {
            "instruction": "And 3 +",
            "input": "4?",
            "output": "It is 7.",
            "system": "Be brief.",
            "history": [["What is 2 + 2?", "It is 4."]],
            "kto_tag": True,
        },
        [[BRIEF, SUM, FOUR, ("user", "And 3 +\n4?")]],
        LATER,
    ),
    PublicSet("LLaMA-Factory, alpaca, preference", {"instruction": "What is 2 + 2?", "input": "", **PAIR}, [[SUM]], PAIR),
    PublicSet(
        "LLaMA-Factory, alpaca, preference as a list (its old form)",
        {"instruction": "What is", "input": "2 + 2?", "output": ["It is 4.", UNKNOWN]},
        refusal="no known shape",
    ),
    PublicSet(
        "LLaMA-Factory, sharegpt",
        {"conversations": share(("human", "What is 2 + 2?"), ("gpt", "It is 4.")), "system": "Be brief.", "tools": "[]"},
        [[BRIEF, SUM]],
        ONE,
    ),
    PublicSet(
        "LLaMA-Factory, sharegpt, preference",
        {
            "conversations": share(("human", "What is 2 + 2?")),
            "chosen": {"from": "gpt", "value": "It is 4."},
            "rejected": {"from": "gpt", "value": UNKNOWN},
        },
        [[SUM]],
        PAIR,
    ),
    PublicSet("LLaMA-Factory v1, SFT", {"messages": v1(*TWO_TURNS)}, [TALK], LATER),
    PublicSet(
        "LLaMA-Factory v1, DPO",
        {"chosen_messages": v1(*ANSWERED), "rejected_messages": v1(*DUNNO)},
        [[SUM]],
        pair_of("chosen_messages", "rejected_messages"),
        options={"conversation_column": ["chosen_messages", "rejected_messages"]},
    ),
    PublicSet(
        "OpenAI, fine-tuning",
        {"messages": [*ASKED, reply("It is 4.", weight=0), *TWO_TURNS[2:]], "parallel_tool_calls": False, "tools": []},
        [TALK],
        LATER,
    ),
    PublicSet(
        "OpenAI, preferences",
        {
            "input": {"messages": BRIEF_TURNS[:2], "tools": [], "parallel_tool_calls": True},
            "preferred_output": [reply("It is 4.")],
            "non_preferred_output": [reply(UNKNOWN)],
        },
        [[BRIEF, SUM]],
        PAIR,
    ),
    PublicSet("Rollouts of NeMo Gym", rollout(SAID_ITEM), [[BRIEF, SUM]], {"output[0]": "It is 4."}),
    PublicSet("Rollouts of NeMo Gym with reasoning", rollout(THOUGHT, SAID_ITEM), refusal="hold reasoning"),
    PublicSet("Rollouts of NeMo Gym, by columns", rollout(THOUGHT, SAID_ITEM), [[BRIEF, SUM]], ONE, options=ROLLOUT),
    PublicSet("verl's prompts, for a policy", VERL, [[SUM]], {"candidate": ""}, prompts=True),
    PublicSet("verl's prompts", VERL, refusal="no known shape"),
    PublicSet(
        "verl's prompts with generations",
        VERL | {"responses": ["It is 4.", UNKNOWN]},
        [[SUM]],
        pair_of("responses[0]", "responses[1]"),
    ),
    PublicSet(
        "verl's dumps of rollouts",
        {"input": "system\nBe brief.\nuser\nWhat is 2 + 2?\nassistant\n", "output": "It is 4.", "gts": "4", "score": 1.0},
        [[BRIEF, SUM]],
        ONE,
    ),
]


@functools.cache
def model() -> RewardModel:
    return resolve_model(ModelSettings(model="tiny-attributes"), RenderSettings())


def read(public: PublicSet, row: Any) -> RowRequests:
    """The requests of the row, which a run would begin with."""
    preview = preview_of(RowSettings(**public.options), [row], unanswered=public.prompts)
    columns = Columns(pa.schema([]), (), "", text=True)
    check_preview(preview, Preparation(model(), RenderSettings(), preview.row_shape, columns))
    return preview.row_shape.requests(row)


def from_parquet(row: dict[str, Any]) -> Any:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([row]), file)
    return python_rows(pq.read_table(file))[0]


@pytest.mark.parametrize(
    "sets", [CHAT_LOGS, PREFERENCES, OPEN_ASSISTANT, SYNTHETIC, TRAINERS], ids=lambda sets: sets[0].name
)
def test_a_public_dataset_is_read_as_its_guide_says(sets: list[PublicSet]) -> None:
    for public in sets:
        for row in (parse(json.dumps(public.row, default=str).encode()), from_parquet(public.row)):
            if public.refusal:
                with pytest.raises(UserError, match=public.refusal):
                    read(public, row)
                continue
            requests = read(public, row)
            if not public.prompts:  # whose responses are yet to be written
                account(requests)
            assert contexts(requests) == [list(context) for context in public.contexts], public.name
            assert (judged(requests), refused(requests)) == (public.responses, public.rejected), public.name
