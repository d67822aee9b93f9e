"""Rows of public data sets and of trainers' files, in exactly their shape and with texts of our own.

For each: its rows with the nulls and the extra columns that the published ones have, its Parquet schema if it is published
so, the settings that read it, and what comes out. `docs/guides/public-datasets.md` has the same as a table for users.

Sources are the data sets' cards (`dataset_info`, which is the Parquet schema) and the code that writes or loads such rows.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from actors.records import Reason

TEXT, INT, REAL, BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
Said = tuple[str, str]


@dataclass(frozen=True)
class Reading:
    """What a row comes out as: a context for each request, the responses by name, and those rejected with their reason."""

    contexts: Sequence[Sequence[Said]] = ()
    responses: Mapping[str, str] = field(default_factory=dict)
    rejected: Mapping[str, Reason] = field(default_factory=dict)


@dataclass(frozen=True)
class PublicSet:
    """A data set: its rows, and what they come out as under the options; or a part of the message that refuses it.

    `schema` is that of its Parquet files, None if it is published as JSON alone. With `prompts`, the rows are prompts for a
    policy.
    """

    name: str
    rows: Sequence[dict[str, Any]]
    readings: Sequence[Reading] = ()
    schema: pa.Schema | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    refusal: str = ""
    prompts: bool = False


def user(text: object, **more: object) -> dict[str, Any]:
    """A turn of the user's, with the content first, as on the Hub."""
    return {"content": text, "role": "user", **more}


def said(text: object, **more: object) -> dict[str, Any]:
    """A turn of the assistant's."""
    return {"content": text, "role": "assistant", **more}


def system(text: object, **more: object) -> dict[str, Any]:
    """A system prompt as a turn."""
    return {"content": text, "role": "system", **more}


def share(*turns: Said, **more: object) -> list[dict[str, Any]]:
    """Turns in ShareGPT's form."""
    return [{"from": name, "value": text, **more} for name, text in turns]


def struct(**fields: pa.DataType) -> pa.DataType:
    """A struct of these fields."""
    return pa.struct(list(fields.items()))


def schema(**fields: pa.DataType) -> pa.Schema:
    """A schema of these fields."""
    return pa.schema(list(fields.items()))


def strings(*names: str) -> dict[str, pa.DataType]:
    """Columns of text."""
    return dict.fromkeys(names, TEXT)


CHAT = pa.list_(struct(content=TEXT, role=TEXT))
SHARE = pa.list_(struct(**{"from": TEXT, "value": TEXT}))
NOTHING = pa.null()

SUM: Said = ("user", "What is 2 + 2?")
MORE: Said = ("user", "And 3 + 4?")
FOUR: Said = ("assistant", "It is 4.")
TALK = [SUM, FOUR, MORE]
BRIEF: Said = ("system", "Be brief.")

PAIR = Reading([[SUM]], {"chosen": "It is 4.", "rejected": "I don't know."})
"""A pair of answers to the first question."""
LATER_PAIR = Reading([TALK], {"chosen": "It is 7.", "rejected": "I don't know."})
"""A pair of answers to the second question."""
BRIEF_PAIR = Reading([[BRIEF, SUM]], PAIR.responses)
ONE = Reading([[SUM]], {"final": "It is 4."})
LATER = Reading([TALK], {"final": "It is 7."})
BRIEF_ONE = Reading([[BRIEF, SUM]], ONE.responses)

ASKED = [user("What is 2 + 2?")]
ANSWERED = [*ASKED, said("It is 4.")]
ASKED_AGAIN = [*ANSWERED, user("And 3 + 4?")]
TWO_TURNS = [*ASKED_AGAIN, said("It is 7.")]
UNKNOWN = "I don't know."


def _element(at: int) -> str:
    """The name of an element of the only response column, which is a list."""
    return f"response[{at}]"


# --- Chat logs -------------------------------------------------------------------------------------------------------
# Cards allenai/WildChat-1M@329d93c, lmsys/lmsys-chat-1m@66e4bf1; lmsys/chatbot_arena_conversations by its copies
# d-llm/chatbot_arena_conversations@a241d8f and agie-ai@d45bf83. arena-human-preference-140k by code that loads it
# (conversation[turn]["content"][0]["text"]), and -55k by its card and the competition's page.

_FLAGS = {"harassment": False, "harassment/threatening": False, "self-harm": False}
_SCORES = {"harassment": 1e-5, "harassment/threatening": 2e-6, "self-harm": 1e-7}
_MODERATION = {"categories": _FLAGS, "category_scores": _SCORES, "flagged": False}
_MODERATED = struct(
    categories=struct(**dict.fromkeys(_FLAGS, BOOL)), category_scores=struct(**dict.fromkeys(_SCORES, REAL)), flagged=BOOL
)
_WHEN = datetime.datetime(2023, 4, 9, 0, 2, 53, tzinfo=datetime.UTC)
_MOMENT = pa.timestamp("us", "UTC")


def _wild_turn(turn: dict[str, Any], number: int) -> dict[str, Any]:
    of_user = turn["role"] == "user"
    header = {"accept-language": "en-US", "user-agent": "Mozilla/5.0"}
    return turn | {
        "country": "Iceland" if of_user else None,
        "hashed_ip": "0f3c" if of_user else None,
        "header": header if of_user else None,
        "language": "English",
        "redacted": False,
        "state": None,
        "timestamp": None if of_user else _WHEN,
        "toxic": False,
        "turn_identifier": 100 + number // 2,
    }


def _wild(turns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "conversation_hash": "c9ec5b440fbdd269c9815adc4ed4557e",
        "model": "gpt-4-0314",
        "timestamp": _WHEN,
        "conversation": [_wild_turn(turn, number) for number, turn in enumerate(turns)],
        "turn": len(turns) // 2,
        "language": "English",
        "openai_moderation": [_MODERATION for _ in turns],
        "detoxify_moderation": [{"toxicity": 6e-4, "insult": 1e-4} for _ in turns],
        "toxic": False,
        "redacted": False,
        "state": "Reykjavik",
        "country": "Iceland",
        "hashed_ip": "0f3c",
        "header": {"accept-language": "en-US", "user-agent": "Mozilla/5.0"},
    }


_HEADER = struct(**{"accept-language": TEXT, "user-agent": TEXT})
_WILD_TURN = struct(
    content=TEXT,
    country=TEXT,
    hashed_ip=TEXT,
    header=_HEADER,
    language=TEXT,
    redacted=BOOL,
    role=TEXT,
    state=TEXT,
    timestamp=_MOMENT,
    toxic=BOOL,
    turn_identifier=INT,
)
_WILDCHAT = schema(
    **strings("conversation_hash", "model", "language", "state", "country", "hashed_ip"),
    timestamp=_MOMENT,
    conversation=pa.list_(_WILD_TURN),
    turn=INT,
    openai_moderation=pa.list_(_MODERATED),
    detoxify_moderation=pa.list_(struct(toxicity=REAL, insult=REAL)),
    toxic=BOOL,
    redacted=BOOL,
    header=_HEADER,
)
_WILD_ROWS = [_wild(TWO_TURNS), _wild(ANSWERED), _wild([*ASKED, said("")])]


def _lmsys(turns: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "conversation_id": "33f01939a744455c869cb234afca47f1",
        "model": "vicuna-13b",
        "conversation": turns,
        "turn": len(turns) // 2,
        "language": "English",
        "openai_moderation": [_MODERATION for _ in turns],
        "redacted": False,
    }


def _battle(first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]], winner: str = "model_a") -> dict[str, Any]:
    return {
        "question_id": "58210e39b3fd4441a2bd4a518bb44c2d",
        "model_a": "chatglm-6b",
        "model_b": "koala-13b",
        "winner": winner,
        "judge": "arena_user_973",
        "conversation_a": first,
        "conversation_b": second,
        "turn": len(first) // 2,
        "anony": True,
        "language": "English",
        "tstamp": 1682351591.1,
        "openai_moderation": _MODERATION,
        "toxic_chat_tag": {"roberta-large": {"flagged": False, "probability": 0.01}},
    }


_DUNNO = [*ASKED, said(UNKNOWN)]
_ARENA = schema(
    **strings("question_id", "model_a", "model_b", "winner", "judge", "language"),
    conversation_a=CHAT,
    conversation_b=CHAT,
    turn=INT,
    anony=BOOL,
    tstamp=REAL,
    openai_moderation=_MODERATED,
    toxic_chat_tag=struct(**{"roberta-large": struct(flagged=BOOL, probability=REAL)}),
)
_ARENA_PAIR = Reading([[SUM]], {"conversation_a": "It is 4.", "conversation_b": UNKNOWN})


def _parts(turns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The turns with content as a list of parts, all of which have all columns."""
    return [
        turn | {"content": [{"type": "text", "text": turn["content"], "image": None, "mimeType": None}]} for turn in turns
    ]


def _recent_battle(first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "6ee5a2fa-7c35-4f9a-9d2a-4a6a0ab0bc5a",
        "model_a": "m",
        "model_b": "n",
        "winner": "tie",
        "evaluation_session_id": "e",
        "evaluation_order": 1,
        "conversation_a": first,
        "conversation_b": second,
        "language": "en",
        "is_code": False,
        "timestamp": _WHEN,
    }


_PARTS = pa.list_(
    struct(role=TEXT, content=pa.list_(struct(type=TEXT, text=TEXT, image=TEXT, mimeType=TEXT)))
)  # a part is an image instead if `type` says so
_PICTURE = [
    user([{"type": "image", "text": None, "image": "iVBORw0KGgo=", "mimeType": "image/png"}]),
    *_parts([said("A cat.")]),
]

CHAT_LOGS = [
    PublicSet(
        "WildChat-1M",
        _WILD_ROWS,
        [LATER, ONE, Reading(rejected={"final": Reason.EMPTY_CONTENT})],
        _WILDCHAT,
    ),
    PublicSet(
        "WildChat-1M, every turn",
        _WILD_ROWS,
        [
            Reading([[SUM], TALK], {"turn[1]": "It is 4.", "turn[3]": "It is 7."}),
            Reading([[SUM]], {"turn[1]": "It is 4."}),
            Reading(rejected={"turn[1]": Reason.EMPTY_CONTENT}),
        ],
        _WILDCHAT,
        {"turns": "all"},
    ),
    PublicSet(
        "WildChat-1M, by its column",
        _WILD_ROWS[:2],
        [LATER, ONE],
        _WILDCHAT,
        {"conversation_column": ["conversation"]},
    ),
    PublicSet(
        "LMSYS-Chat-1M",
        [_lmsys(ANSWERED), _lmsys(TWO_TURNS), _lmsys([user("I am NAME_1."), said("Hello, NAME_1.")])],
        [ONE, LATER, Reading([[("user", "I am NAME_1.")]], {"final": "Hello, NAME_1."})],
        schema(
            **strings("conversation_id", "model", "language"),
            conversation=CHAT,
            turn=INT,
            openai_moderation=pa.list_(_MODERATED),
            redacted=BOOL,
        ),
    ),
    PublicSet(
        "Chatbot Arena conversations",
        [
            _battle(ANSWERED, _DUNNO),
            _battle(TWO_TURNS, [*_DUNNO, user("And 3 + 4?"), said("It is 7.")], "tie (bothbad)"),
            _battle(_DUNNO, ANSWERED, "model_b"),
        ],
        [
            _ARENA_PAIR,
            Reading(
                [TALK, [SUM, ("assistant", UNKNOWN), MORE]],
                {"conversation_a": "It is 7.", "conversation_b": "It is 7."},
            ),
            Reading([[SUM]], {"conversation_a": UNKNOWN, "conversation_b": "It is 4."}),
        ],
        _ARENA,
    ),
    PublicSet(
        "Arena human preference 140k",
        [
            _recent_battle(_parts(ANSWERED), _parts(_DUNNO)),
            _recent_battle(_PICTURE, _PICTURE),
        ],
        [
            _ARENA_PAIR,
            Reading(rejected=dict.fromkeys(["conversation_a", "conversation_b"], Reason.CONTENT_NOT_TEXT)),
        ],
        schema(
            **strings("id", "model_a", "model_b", "winner", "evaluation_session_id", "language"),
            evaluation_order=INT,
            conversation_a=_PARTS,
            conversation_b=_PARTS,
            is_code=BOOL,
            timestamp=_MOMENT,
        ),
    ),
    PublicSet(
        "Arena human preference 55k",
        [
            {
                "id": 30192,
                "model_a": "m",
                "model_b": "n",
                "prompt": '["What is 2 + 2?"]',
                "response_a": '["It is 4."]',
                "response_b": '["I don\'t know."]',
                "winner_model_a": 1,
                "winner_model_b": 0,
                "winner_tie": 0,
            }
        ]
        * 3,
        options={"prompt_column": "prompt", "response_column": ["response_a", "response_b"]},
        refusal="(?i)json",
    ),
]

# --- Preferences -----------------------------------------------------------------------------------------------------
# openbmb/UltraFeedback: README of its repository. Cards HuggingFaceH4/ultrafeedback_binarized@daee4cf, Anthropic/hh-rlhf
# (JSONL, `chosen` and `rejected` transcripts), ThWu/filtered_nectar (Nectar's columns and types), nvidia/HelpSteer 1 to 3,
# allenai/llama-3.1-tulu-3-8b-preference-mixture, Skywork/Skywork-Reward-Preference-80K-v0.2@1963267, stanfordnlp/SHP, code
# that writes its rows, PKU-Alignment/PKU-SafeRLHF (JSONL) and code that loads it.


def _completion(text: str, model: str) -> dict[str, Any]:
    rating = {"Rating": "5", "Rationale": "It is right."}
    return {
        "annotations": {"helpfulness": rating, "honesty": rating | {"Rating": "N/A"}},
        "custom_system_prompt": "As an AI assistant, be truthful.",
        "model": model,
        "principle": "truthfulness",
        "response": text,
        "critique": "Good.",
        "fine-grained_score": 4.75,
        "overall_score": 8.5,
    }


_RATING = struct(Rating=TEXT, Rationale=TEXT)
_ULTRAFEEDBACK = schema(
    source=TEXT,
    instruction=TEXT,
    models=pa.list_(TEXT),
    completions=pa.list_(
        struct(
            annotations=struct(helpfulness=_RATING, honesty=_RATING),
            custom_system_prompt=TEXT,
            model=TEXT,
            principle=TEXT,
            response=TEXT,
            critique=TEXT,
            **{"fine-grained_score": REAL, "overall_score": REAL},
        )
    ),
    correct_answers=pa.list_(TEXT),
    incorrect_answers=pa.list_(TEXT),
)


def _ultra(*texts: str) -> dict[str, Any]:
    models = [f"model-{index}" for index in range(len(texts))]
    return {
        "source": "evol_instruct",
        "instruction": "What is 2 + 2?",
        "models": models,
        "completions": [_completion(text, model) for text, model in zip(texts, models, strict=True)],
        "correct_answers": ["None"],
        "incorrect_answers": ["None"],
    }


def _binarized(prompt: str, chosen: Sequence[Any], rejected: Sequence[Any]) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "prompt_id": "f0e37e9f7800261167ce91143f98f511f768847236f133f2d0aed60b444ebe57",
        "chosen": chosen,
        "rejected": rejected,
        "messages": chosen,
        "score_chosen": 8.5,
        "score_rejected": 7.0,
    }


_LATER_DUNNO = [*ASKED_AGAIN, said(UNKNOWN)]
_BINARIZED = schema(
    prompt=TEXT, prompt_id=TEXT, chosen=CHAT, rejected=CHAT, messages=CHAT, score_chosen=REAL, score_rejected=REAL
)
_TALKED = "\n\nHuman: What is 2 + 2?\n\nAssistant: It is 4.\n\nHuman: And 3 + 4?\n\nAssistant:"
_ASKED_IN_WORDS = "\n\nHuman: What is 2 + 2?\n\nAssistant:"


def _ranked(prompt: str, *texts: str) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "answers": [{"answer": text, "model": f"m{index}", "rank": index + 1.0} for index, text in enumerate(texts)],
        "turns": 1,
        "num_responses": len(texts),
        "source": ["lmsys-chat-1m"],
        "good_natured": True,
    }


_ATTRIBUTES = {"helpfulness": 4, "correctness": 4, "coherence": 4, "complexity": 1, "verbosity": 1}
_EMBEDDED = "What is 2 + 2?\n<extra_id_1>Assistant\nIt is 4.\n<extra_id_1>User\nAnd 3 + 4?"
_HELPSTEER3 = {"domain": "general", "language": "english"}
_ROLE_FIRST = [{"role": turn["role"], "content": turn["content"]} for turn in ASKED_AGAIN]


def _post(history: str, first: str, second: str) -> dict[str, Any]:
    return {
        "post_id": "qt3nxl",
        "domain": "askculinary_train",
        "upvote_ratio": 0.98,
        "history": history,
        "c_root_id_A": "hkh25sc",
        "c_root_id_B": "hkh25lp",
        "created_at_utc_A": 1636822112,
        "created_at_utc_B": 1636822110,
        "score_A": 340,
        "score_B": 166,
        "human_ref_A": first,
        "human_ref_B": second,
        "labels": 1,
        "seconds_difference": 2.0,
        "score_ratio": 2.0481927711,
    }


_HARM = {"Violence": False, "Privacy Violation": False}


def _safe(first: str, second: str) -> dict[str, Any]:
    return {
        "prompt": "What is 2 + 2?",
        "response_0": first,
        "response_1": second,
        "prompt_source": "BeaverTails",
        "response_0_source": "Alpaca3-8B",
        "response_1_source": "WizardLM-30B-Uncensored",
        "is_response_0_safe": True,
        "is_response_1_safe": True,
        "response_0_harm_category": _HARM,
        "response_1_harm_category": _HARM,
        "response_0_severity_level": 0,
        "response_1_severity_level": 0,
        "better_response_id": 0,
        "safer_response_id": 0,
        "response_0_sha256": "a1",
        "response_1_sha256": "b2",
    }


PREFERENCES = [
    PublicSet(
        "UltraFeedback",
        [_ultra("It is 4.", UNKNOWN), _ultra("It is 4.", "", "Four."), _ultra("It is 4.")],
        [
            Reading([[SUM]], {"completions[0]": "It is 4.", "completions[1]": UNKNOWN}),
            Reading(
                [[SUM]], {"completions[0]": "It is 4.", "completions[2]": "Four."}, {"completions[1]": Reason.EMPTY_CONTENT}
            ),
            Reading([[SUM]], {"completions[0]": "It is 4."}),
        ],
        _ULTRAFEEDBACK,
    ),
    PublicSet(
        "UltraFeedback binarized",
        [
            _binarized("What is 2 + 2?", ANSWERED, _DUNNO),
            _binarized("What is 2 + 2?", TWO_TURNS, _LATER_DUNNO),
            _binarized("What is 2 + 2?", ANSWERED, [*ASKED, said("")]),
        ],
        [PAIR, LATER_PAIR, Reading([[SUM]], {"chosen": "It is 4."}, {"rejected": Reason.EMPTY_CONTENT})],
        _BINARIZED,
    ),
    PublicSet(
        "HH-RLHF",
        [
            {"chosen": _ASKED_IN_WORDS + " It is 4.", "rejected": _ASKED_IN_WORDS + " I don't know."},
            {"chosen": _TALKED + " It is 7.", "rejected": _TALKED + " I don't know."},
            {"chosen": _ASKED_IN_WORDS + " It is 4.", "rejected": _ASKED_IN_WORDS},
        ],
        [PAIR, LATER_PAIR, Reading([[SUM]], {"chosen": "It is 4."}, {"rejected": Reason.EMPTY_CONTENT})],
    ),
    PublicSet(
        "HH-RLHF, split into prompt and answers as TRL's examples do",
        [
            {"prompt": _ASKED_IN_WORDS, "chosen": " It is 4.", "rejected": " I don't know."},
            {"prompt": _TALKED, "chosen": " It is 7.", "rejected": " I don't know."},
        ],
        [PAIR, LATER_PAIR],
        schema(**strings("prompt", "chosen", "rejected")),
    ),
    PublicSet(
        "Nectar",
        [
            _ranked("\n\nHuman: What is 2 + 2?\n\nAssistant: ", "It is 4.", UNKNOWN),
            _ranked(_TALKED + " ", "It is 7.", UNKNOWN, "Seven."),
            _ranked("\n\nHuman: What is 2 + 2?\n\nAssistant: ", "It is 4.", ""),
        ],
        [
            Reading([[SUM]], {_element(0): "It is 4.", _element(1): UNKNOWN}),
            Reading([TALK], {_element(0): "It is 7.", _element(1): UNKNOWN, _element(2): "Seven."}),
            Reading([[SUM]], {_element(0): "It is 4."}, {_element(1): Reason.EMPTY_CONTENT}),
        ],
        schema(
            prompt=TEXT,
            answers=pa.list_(struct(answer=TEXT, model=TEXT, rank=REAL)),
            turns=INT,
            num_responses=INT,
            source=pa.list_(TEXT),
            good_natured=BOOL,
        ),
        {"prompt_column": "prompt", "response_column": ["answers[].answer"]},
    ),
    PublicSet(
        "HelpSteer and HelpSteer2",
        [
            {"prompt": "What is 2 + 2?", "response": "It is 4.", **_ATTRIBUTES},
            {"prompt": _EMBEDDED, "response": "It is 7.", **_ATTRIBUTES},
            {"prompt": "What is 2 + 2?", "response": "It is 4.", **_ATTRIBUTES},
        ],
        [ONE, LATER, ONE],
    ),
    PublicSet(
        "HelpSteer2, disagreements",
        [
            {"prompt": "What is 2 + 2?", "response": "It is 4.", **{name: [4, 3, 4] for name in _ATTRIBUTES}},
            {"prompt": _EMBEDDED, "response": "It is 7.", **{name: [4, 2] for name in _ATTRIBUTES}},
        ],
        [ONE, LATER],
    ),
    PublicSet(
        "HelpSteer2, preference",
        [
            {
                "split": "train",
                "prompt": prompt,
                "response_1": answer,
                "response_2": UNKNOWN,
                "preference_strength": -2,
                "preference_statement": "Response 1 is much better.",
                "preference_elaboration": "It answers.",
                "three_most_similar_preferences": [{"statement": "@Response 1", "elaboration": "x", "strength": -2}] * 3,
                "all_preferences_unprocessed": [{"strength": -2, "justification": "x"}] * 4,
            }
            for prompt, answer in (("What is 2 + 2?", "It is 4."), (_EMBEDDED, "It is 7."))
        ],
        [
            Reading([[SUM]], {"response_1": "It is 4.", "response_2": UNKNOWN}),
            Reading([TALK], {"response_1": "It is 7.", "response_2": UNKNOWN}),
        ],
    ),
    PublicSet(
        "HelpSteer3, preference",
        [
            {
                **_HELPSTEER3,
                "context": _ROLE_FIRST,
                "response1": "It is 7.",
                "response2": UNKNOWN,
                "overall_preference": -2,
                "individual_preference": [{"score": -2, "reasoning": "It answers."}] * 3,
            }
        ]
        * 3,
        [Reading([TALK], {"response1": "It is 7.", "response2": UNKNOWN})] * 3,
    ),
    PublicSet(
        "HelpSteer3, feedback",
        [
            {
                **_HELPSTEER3,
                "context": _ROLE_FIRST[:1],
                "response1": "It is 4.",
                "response2": UNKNOWN,
                "feedback1": ["The response is perfectly helpful."] * 3,
                "feedback2": ["The response is not helpful."] * 2,
            }
        ]
        * 2,
        [Reading([[SUM]], {"response1": "It is 4.", "response2": UNKNOWN})] * 2,
    ),
    PublicSet(
        "HelpSteer3, edit",
        [
            {
                **_HELPSTEER3,
                "context": _ROLE_FIRST[:1],
                "original_response": UNKNOWN,
                "edited_response": "It is 4.",
                "feedback": ["x"] * 3,
                "change_summary": "It answers now.",
            }
        ]
        * 2,
        [Reading([[SUM]], {"original_response": UNKNOWN, "edited_response": "It is 4."})] * 2,
    ),
    PublicSet(
        "HelpSteer3, edit_quality",
        [
            {
                **_HELPSTEER3,
                "context": _ROLE_FIRST[:1],
                "original_response": UNKNOWN,
                "good_edited_response": "It is 4.",
                "bad_edited_response": "It is 5.",
                "feedback": ["x"] * 3,
            }
        ]
        * 2,
        [
            Reading(
                [[SUM]],
                {"original_response": UNKNOWN, "good_edited_response": "It is 4.", "bad_edited_response": "It is 5."},
            )
        ]
        * 2,
    ),
    PublicSet(
        "HelpSteer3, principle",
        [
            {
                **_HELPSTEER3,
                "context": _ROLE_FIRST,
                "response": "It is 7.",
                "principle": "Does it answer?",
                "fulfilment": fulfilment,
            }
            for fulfilment in ("Yes", "No")
        ],
        [LATER] * 2,
    ),
    PublicSet(
        "Tulu 3 preference mixture",
        [
            {"id": "a", "prompt": "What is 2 + 2?", "chosen": ANSWERED, "rejected": _DUNNO, "source": "tulu-3-if"},
            {"id": "b", "prompt": "What is 2 + 2?", "chosen": TWO_TURNS, "rejected": _LATER_DUNNO, "source": "wildchat"},
            {
                "id": "c",
                "prompt": "What is 2 + 2?",
                "chosen": [system("Be brief."), *ANSWERED],
                "rejected": [system("Be brief."), *_DUNNO],
                "source": "ultrafeedback-cleaned",
            },
        ],
        [PAIR, LATER_PAIR, BRIEF_PAIR],
        schema(**strings("id", "prompt", "source"), chosen=CHAT, rejected=CHAT),
    ),
    PublicSet(
        "Skywork-Reward-Preference-80K",
        [
            {"chosen": ANSWERED, "rejected": _DUNNO, "source": "helpsteer2"},
            {"chosen": TWO_TURNS, "rejected": _LATER_DUNNO, "source": "offsetbias"},
            {"chosen": ANSWERED, "rejected": _DUNNO, "source": "wildguard"},
        ],
        [PAIR, LATER_PAIR, PAIR],
        schema(chosen=CHAT, rejected=CHAT, source=TEXT),
    ),
    PublicSet(
        "SHP",
        [
            _post("What is 2 + 2?", "It is 4.", UNKNOWN),
            _post("What is 2 + 2?", "It is 4.", "Four."),
            _post("What is 2 + 2?", "It is 4.", " "),
        ],
        [
            Reading([[SUM]], {"human_ref_A": "It is 4.", "human_ref_B": UNKNOWN}),
            Reading([[SUM]], {"human_ref_A": "It is 4.", "human_ref_B": "Four."}),
            Reading([[SUM]], {"human_ref_A": "It is 4."}, {"human_ref_B": Reason.EMPTY_CONTENT}),
        ],
        options={"prompt_column": "history", "response_column": ["human_ref_A", "human_ref_B"]},
    ),
    PublicSet(
        "PKU-SafeRLHF",
        [_safe("It is 4.", UNKNOWN), _safe(UNKNOWN, "It is 4."), _safe("It is 4.", "")],
        [
            Reading([[SUM]], {"response_0": "It is 4.", "response_1": UNKNOWN}),
            Reading([[SUM]], {"response_0": UNKNOWN, "response_1": "It is 4."}),
            Reading([[SUM]], {"response_0": "It is 4."}, {"response_1": Reason.EMPTY_CONTENT}),
        ],
        options={"prompt_column": "prompt", "response_column": ["response_0", "response_1"]},
    ),
]

# --- OpenAssistant ---------------------------------------------------------------------------------------------------
# Cards OpenAssistant/oasst1, oasst2@4af2e34 (Parquet: a row per message; JSONL: a tree per line),
# OpenAssistant/oasst_top1_2023-08-25 (ChatML in `text`), timdettmers/openassistant-guanaco ("### Human:" in `text`),
# blancsw/oasst2_top1_chat_format@45de055.


def _message(number: int, parent: int | None, text: str) -> dict[str, Any]:
    return {
        "message_id": f"m{number}",
        "parent_id": parent if parent is None else f"m{parent}",
        "user_id": "u",
        "created_date": "2023-02-05T14:23:50.983374+00:00",
        "text": text,
        "role": "assistant" if number % 2 else "prompter",
        "lang": "en",
        "review_count": 3,
        "review_result": True,
        "deleted": False,
        "rank": 0 if number % 2 else None,
        "synthetic": False,
        "model_name": None,
        "detoxify": {"toxicity": 4e-4, "insult": 2e-4},
        "message_tree_id": "m0",
        "tree_state": "ready_for_export",
        "emojis": {"name": ["+1"], "count": [5]},
        "labels": {"name": ["spam"], "value": [0.0], "count": [3]},
    }


_OASST = schema(
    **strings(
        "message_id",
        "parent_id",
        "user_id",
        "created_date",
        "text",
        "role",
        "lang",
        "model_name",
        "message_tree_id",
        "tree_state",
    ),
    review_count=pa.int32(),
    review_result=BOOL,
    deleted=BOOL,
    rank=pa.int32(),
    synthetic=BOOL,
    detoxify=struct(toxicity=REAL, insult=REAL),
    emojis=struct(name=pa.list_(TEXT), count=pa.list_(pa.int32())),
    labels=struct(name=pa.list_(TEXT), value=pa.list_(REAL), count=pa.list_(pa.int32())),
)
_TREE = {
    "message_tree_id": "m0",
    "tree_state": "ready_for_export",
    "prompt": {
        "message_id": "m0",
        "text": "What is 2 + 2?",
        "role": "prompter",
        "lang": "en",
        "replies": [
            {"message_id": "m1", "parent_id": "m0", "text": "It is 4.", "role": "assistant", "rank": 0, "replies": []},
            {"message_id": "m2", "parent_id": "m0", "text": UNKNOWN, "role": "assistant", "rank": 1, "replies": []},
        ],
    },
}
_CHATML = "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\nIt is 4.<|im_end|>\n"

OPEN_ASSISTANT = [
    PublicSet(
        "OASST1 and OASST2, a message a row",
        [_message(0, None, "What is 2 + 2?"), _message(1, 0, "It is 4."), _message(2, 1, "And 3 + 4?")],
        schema=_OASST,
        refusal="no known shape",
    ),
    PublicSet("OASST1 and OASST2, a tree a line", [_TREE] * 3, refusal="no known shape"),
    PublicSet(
        "OASST1 and OASST2, the first replies of a tree",
        [_TREE] * 3,
        [Reading([[SUM]], {_element(0): "It is 4.", _element(1): UNKNOWN})] * 3,
        options={"prompt_column": "prompt.text", "response_column": ["prompt.replies[].text"]},
    ),
    PublicSet(
        "OpenAssistant's best threads in ChatML",
        [{"text": _CHATML}] * 3,
        [ONE] * 3,
    ),
    PublicSet(
        "OpenAssistant-Guanaco",
        [{"text": "### Human: What is 2 + 2?### Assistant: It is 4.### Human: And 3 + 4?### Assistant: It is 7."}] * 3,
        [LATER] * 3,
    ),
    PublicSet(
        "OASST2's best threads in chat form",
        [{"conversation": ANSWERED}, {"conversation": TWO_TURNS}],
        [ONE, LATER],
        schema(conversation=CHAT),
    ),
]

# --- Synthetic data --------------------------------------------------------------------------------------------------
# Cards Magpie-Align/Magpie-Phi3-Pro-300K-Filtered@04d452e and Magpie-Llama-3.1-Pro-MT-300K-Filtered,
# youjunhyeok/Magpie-Pro-DPO-100K-v0.1-ko (the columns of Magpie-Pro-DPO-100K-v0.1), code that loads openhermes2_5.json,
# argilla/ultrafeedback-binarized-preferences(-cleaned), argilla/distilabel-capybara-dpo-7k-binarized@77df64d,
# argilla/oasst_response_quality@1df6ef9, malhajar/distilabel-intel-orca-dpo-pairs-tr@e9de3ee,
# Felladrin/ChatML-distilabel-intel-orca-dpo-pairs, and distilabel's own exports
# ashercn97/example-preference-dataset2_work5@c37f5dc, alvarobartt/ultrafeedback-mini@03278a7.

_GENERATED = {"temperature": 1.0, "top_p": 1.0, "input_generator": "m", "seed": None, "pre_query_template": "<|user|>"}
_GENERATION = struct(temperature=REAL, top_p=REAL, input_generator=TEXT, seed=NOTHING, pre_query_template=TEXT)


def _magpie(*turns: Said) -> dict[str, Any]:
    texts = [text for _, text in turns]
    numbered = dict(zip(("instruction", "response", "instruction_2", "response_2"), [*texts, None, None], strict=False))
    return {
        "uuid": "u",
        "model": "m",
        "gen_input_configs": _GENERATED,
        **numbered,
        "conversations": share(*zip(("human", "gpt") * 2, texts, strict=False)),
        "task_category": "Math",
        "other_task_category": [],
        "difficulty": "very easy",
        "intent": "The user wants a sum.",
        "llama_guard_2": "safe",
        "instruct_reward": -3.5,
        "min_similar_uuid": None,
        "language": "EN",
    }


_MAGPIE = schema(
    **strings(
        "uuid",
        "model",
        "instruction",
        "response",
        "instruction_2",
        "response_2",
        "task_category",
        "difficulty",
        "intent",
        "llama_guard_2",
        "min_similar_uuid",
        "language",
    ),
    gen_input_configs=_GENERATION,
    conversations=SHARE,
    other_task_category=pa.list_(TEXT),
    instruct_reward=REAL,
)


def _hermes(turns: list[dict[str, Any]], **more: object) -> dict[str, Any]:
    columns = ("custom_instruction", "topic", "model_name", "model", "skip_prompt_formatting", "category", "views")
    others = ("language", "id", "title", "idx", "hash", "avatarUrl", "system_prompt", "source")
    return {**dict.fromkeys((*columns, *others)), "conversations": turns, **more}


_HERMES_TEXTS = ("topic", "model_name", "category", "language", "id", "title", "avatarUrl", "system_prompt", "source")
_OPENHERMES = schema(
    custom_instruction=BOOL,
    skip_prompt_formatting=BOOL,
    views=INT,
    idx=INT,
    hash=INT,
    model=NOTHING,
    conversations=pa.list_(struct(**{"from": TEXT, "value": TEXT, "weight": REAL})),
    **dict.fromkeys(_HERMES_TEXTS, TEXT),
)
_ASKED_SHARE = (("human", "What is 2 + 2?"), ("gpt", "It is 4."))


def _intel(system_prompt: str, chosen: str, rejected: str) -> dict[str, Any]:
    return {
        "system": system_prompt,
        "input": "What is 2 + 2?",
        "chosen": chosen,
        "rejected": rejected,
        "generations": [chosen, rejected],
        "order": ["chosen", "rejected"],
        "labelling_model": "gpt-4-1106-preview",
        "labelling_prompt": [user("Please rate these responses.")],
        "raw_labelling_response": "9\n3",
        "rating": [9.0, 3.0],
        "rationale": "The first one answers.",
        "status": "unchanged",
        "original_chosen": chosen,
        "original_rejected": rejected,
        "chosen_score": 9.0,
        "in_gsm8k_train": False,
    }


_METADATA = {"raw_input_ultra_feedback_0": [user("Rate these.")], "raw_output_ultra_feedback_0": "#### Output 1\nRating: 5"}


def _distilled(chosen: Sequence[Any], rejected: Sequence[Any]) -> dict[str, Any]:
    return {
        "instruction": "What is 2 + 2?",
        "generations": [chosen[-1]["content"], rejected[-1]["content"]],
        "model_names": ["m", "n"],
        "distilabel_metadata": _METADATA,
        "types": [None, None],
        "rationales": ["right", "wrong"],
        "ratings": [5, 1],
        "model_name": "gpt-4",
        "prompt": "What is 2 + 2?",
        "prompt_id": "p",
        "chosen": chosen,
        "chosen_rating": 5,
        "rejected": rejected,
        "rejected_rating": 1,
    }


SYNTHETIC = [
    PublicSet("Magpie", [_magpie(SUM, FOUR)] * 3, [ONE] * 3, _MAGPIE),
    PublicSet("Magpie, multi-turn", [_magpie(*TALK, ("assistant", "It is 7."))] * 3, [LATER] * 3, _MAGPIE),
    PublicSet(
        "Magpie, DPO",
        [
            {
                "uuid": "u",
                "instruction": "What is 2 + 2?",
                "gen_input_configs": _GENERATED,
                "intent": "The user wants a sum.",
                "responses": ["It is 4.", "Four.", UNKNOWN],
                "gen_response_configs": {"engine": "vllm", "max_tokens": 4096},
                "rewards_armorm": [{"score": 0.2}, {"score": 0.15}, {"score": 0.1}],
                "chosen": ANSWERED,
                "rejected": _DUNNO,
            }
        ]
        * 3,
        [PAIR] * 3,
        schema(
            **strings("uuid", "instruction", "intent"),
            gen_input_configs=_GENERATION,
            responses=pa.list_(TEXT),
            gen_response_configs=struct(engine=TEXT, max_tokens=INT),
            rewards_armorm=pa.list_(struct(score=REAL)),
            chosen=CHAT,
            rejected=CHAT,
        ),
    ),
    PublicSet(
        "OpenHermes 2.5",
        [
            _hermes(share(*_ASKED_SHARE, weight=None), source="airoboros2.2", category="orca", skip_prompt_formatting=False),
            _hermes(share(("system", "Be brief."), *_ASKED_SHARE, weight=None), source="glaive-code-assist"),
            _hermes(share(*_ASKED_SHARE, weight=None), system_prompt="Be brief.", custom_instruction=True, id="i", views=3),
        ],
        [ONE, BRIEF_ONE, BRIEF_ONE],
        _OPENHERMES,
    ),
    PublicSet(
        "UltraFeedback binarized by Argilla, its first form",
        [
            {
                "source": "evol_instruct",
                "instruction": "What is 2 + 2?",
                "chosen_response": "It is 4.",
                "rejected_response": UNKNOWN,
                "chosen_avg_rating": 5.0,
                "rejected_avg_rating": 3.5,
                "chosen_model": "gpt-4",
            }
        ]
        * 3,
        [Reading([[SUM]], {"chosen_response": "It is 4.", "rejected_response": UNKNOWN})] * 3,
        schema(
            **strings("source", "instruction", "chosen_response", "rejected_response", "chosen_model"),
            chosen_avg_rating=REAL,
            rejected_avg_rating=REAL,
        ),
        {"prompt_column": "instruction", "response_column": ["chosen_response", "rejected_response"]},
    ),
    PublicSet(
        "UltraFeedback binarized by Argilla, cleaned",
        [
            {
                "source": "evol_instruct",
                "prompt": "What is 2 + 2?",
                "chosen": ANSWERED,
                "chosen-rating": 5.0,
                "chosen-model": "gpt-4",
                "rejected": _DUNNO,
                "rejected-rating": 3.5,
                "rejected-model": "pythia-12b",
            }
        ]
        * 3,
        [PAIR] * 3,
        schema(
            source=TEXT,
            prompt=TEXT,
            chosen=CHAT,
            rejected=CHAT,
            **{"chosen-rating": REAL, "chosen-model": TEXT, "rejected-rating": REAL, "rejected-model": TEXT},
        ),
    ),
    PublicSet(
        "A feedback export of Argilla",
        [
            {
                "prompt": "What is 2 + 2?",
                "response": "It is 4.",
                "quality": [{"user_id": None, "value": 5, "status": "submitted"}],
                "quality-suggestion": None,
                "quality-suggestion-metadata": {"type": None, "score": None, "agent": None},
                "external_id": None,
                "metadata": "{}",
            }
        ]
        * 3,
        [ONE] * 3,
        schema(
            **strings("prompt", "response", "external_id", "metadata"),
            **{
                "quality": pa.list_(struct(user_id=TEXT, value=INT, status=TEXT)),
                "quality-suggestion": INT,
                "quality-suggestion-metadata": struct(type=TEXT, score=REAL, agent=TEXT),
            },
        ),
    ),
    PublicSet(
        "Capybara DPO by distilabel",
        [
            {
                "source": "Dove",
                "conversation": [
                    {"input": "What is 2 + 2?", "output": "It is 4."},
                    {"input": "And 3 + 4?", "output": "Seven."},
                ],
                "original_response": "Seven.",
                "generation_prompt": ["<s>[INST] What is 2 + 2? [/INST]"],
                "raw_generation_responses": ["It is 7.", UNKNOWN],
                "new_generations": ["It is 7.", UNKNOWN],
                "prompt": "And 3 + 4?",
                "chosen": TWO_TURNS,
                "rejected": _LATER_DUNNO,
                "rating_chosen": 5,
                "rating_rejected": 2,
                "chosen_model": "m",
                "rejected_model": "n",
            }
        ]
        * 3,
        [LATER_PAIR] * 3,
        schema(
            **strings("source", "original_response", "prompt", "chosen_model", "rejected_model"),
            conversation=pa.list_(struct(input=TEXT, output=TEXT)),
            generation_prompt=pa.list_(TEXT),
            raw_generation_responses=pa.list_(TEXT),
            new_generations=pa.list_(TEXT),
            chosen=CHAT,
            rejected=CHAT,
            rating_chosen=INT,
            rating_rejected=INT,
        ),
    ),
    PublicSet(
        "Intel Orca DPO by distilabel",
        [_intel("Be brief.", "It is 4.", UNKNOWN), _intel("", "It is 4.", UNKNOWN), _intel("", "It is 4.", "")],
        [BRIEF_PAIR, PAIR, Reading([[SUM]], {"chosen": "It is 4."}, {"rejected": Reason.EMPTY_CONTENT})],
        schema(
            **strings(
                "system",
                "input",
                "chosen",
                "rejected",
                "labelling_model",
                "raw_labelling_response",
                "rationale",
                "status",
                "original_chosen",
                "original_rejected",
            ),
            generations=pa.list_(TEXT),
            order=pa.list_(TEXT),
            labelling_prompt=CHAT,
            rating=pa.list_(REAL),
            chosen_score=REAL,
            in_gsm8k_train=BOOL,
        ),
        {"prompt_column": "input", "response_column": ["chosen", "rejected"]},
    ),
    PublicSet(
        "Intel Orca DPO in ChatML",
        [
            {
                "prompt": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n"
                "<|im_start|>assistant\n",
                "chosen": "It is 4.<|im_end|>",
                "rejected": "I don't know.<|im_end|>",
            },
            {
                "prompt": "<|im_start|>user\nWhat is 2 + 2?<|im_end|>\n<|im_start|>assistant\n",
                "chosen": "It is 4.<|im_end|>",
                "rejected": "I don't know.<|im_end|>",
            },
        ],
        [BRIEF_PAIR, PAIR],
        schema(**strings("prompt", "chosen", "rejected")),
    ),
    PublicSet(
        "A preference export of distilabel",
        [_distilled(ANSWERED, _DUNNO)] * 3,
        [PAIR] * 3,
        schema(
            **strings("instruction", "model_name", "prompt", "prompt_id"),
            generations=pa.list_(TEXT),
            model_names=pa.list_(TEXT),
            distilabel_metadata=struct(raw_input_ultra_feedback_0=CHAT, raw_output_ultra_feedback_0=TEXT),
            types=pa.list_(NOTHING),
            rationales=pa.list_(TEXT),
            ratings=pa.list_(INT),
            chosen=CHAT,
            chosen_rating=INT,
            rejected=CHAT,
            rejected_rating=INT,
        ),
    ),
    PublicSet(
        "Generations of distilabel",
        [
            {
                "instruction": "What is 2 + 2?",
                "generations": ["It is 4.", second],
                "generation_models": ["m", "n"],
                "ratings": ["5", "1"],
                "rationales": ["right", "wrong"],
            }
            for second in (UNKNOWN, None)
        ],
        [
            Reading([[SUM]], {_element(0): "It is 4.", _element(1): UNKNOWN}),
            Reading([[SUM]], {_element(0): "It is 4."}, {_element(1): Reason.EMPTY_CONTENT}),
        ],
        schema(
            instruction=TEXT,
            generations=pa.list_(TEXT),
            generation_models=pa.list_(TEXT),
            ratings=pa.list_(TEXT),
            rationales=pa.list_(TEXT),
        ),
        {"prompt_column": "instruction", "response_column": ["generations"]},
    ),
    PublicSet(
        "Text generations of distilabel",
        [{"instruction": "What is 2 + 2?", "generation": "It is 4.", "model_name": "m"}] * 3,
        [ONE] * 3,
        schema(**strings("instruction", "generation", "model_name")),
        {"prompt_column": "instruction", "response_column": ["generation"]},
    ),
]

# --- Files of trainers -----------------------------------------------------------------------------------------------
# ms-swift docs/source_en/Customization/Custom-dataset.md@025fc6b (rejected_messages: its preprocessor's standard keys);
# LLaMA-Factory data/README.md@015ff25 and src/llamafactory/v1/plugins/data_plugins/converter.py@0798d9d; OpenAI's guides to
# supervised fine-tuning and to direct preference optimization; NeMo Gym resources_servers/abstention/data/
# example_rollouts.jsonl@6757967; verl examples/data_preprocess/gsm8k.py@030a519 and `_dump_generations` of ray_trainer.py,
# whose texts are decoded with skip_special_tokens=True.

_SWIFT = {"system": "Be brief."}
_FIRST = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "It is 4."}]
_OPENAI = [{"role": "system", "content": "Be brief."}, *_FIRST]


def _v1(turns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Turns in the form of LLaMA-Factory's next version."""
    return [
        {
            "role": turn["role"],
            "content": [{"type": "text", "value": turn["content"]}],
            "loss_weight": float(turn["role"] == "assistant"),
        }
        for turn in turns
    ]


def _item(turn: dict[str, Any], **more: object) -> dict[str, Any]:
    return {"content": turn["content"], "role": turn["role"], "type": "message", "phase": None, **more}


_SAID_ITEM = {
    "id": "msg_0",
    "content": [{"annotations": [], "text": "It is 4.", "type": "output_text", "logprobs": []}],
    "role": "assistant",
    "status": "completed",
    "type": "message",
    "phase": None,
}
_THOUGHT_ITEM = {"id": "rs_0", "summary": [{"text": "Two and two.", "type": "summary_text"}], "type": "reasoning"}
_CALL_ITEM = {"id": "fc_0", "arguments": "{}", "call_id": "c", "name": "add", "type": "function_call"}


def _rollout(*output: dict[str, Any]) -> dict[str, Any]:
    return {
        "responses_create_params": {
            "background": None,
            "input": [_item(system("Be brief.")), _item(ASKED[0])],
            "max_output_tokens": 128,
            "temperature": 0.0,
            "tools": [],
        },
        "response": {"id": "resp_0", "error": None, "model": "m", "object": "response", "output": list(output)},
        "reward": 0.0,
        "failure_reason": None,
        "ground_truth": "4",
        "question": "What is 2 + 2?",
        "answer": "4",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2 + 2?"}],
        "tools": [],
        "agent_ref": {"name": "simple_agent"},
    }


_ROLLOUTS = [_rollout(_SAID_ITEM), _rollout(_THOUGHT_ITEM, _SAID_ITEM), _rollout(_THOUGHT_ITEM, _CALL_ITEM)]
_VERL = {
    "data_source": "openai/gsm8k",
    "prompt": ASKED,
    "ability": "math",
    "reward_model": {"ground_truth": "4", "style": "rule"},
    "extra_info": {"answer": "It is 4.\n#### 4", "index": 0, "question": "What is 2 + 2?", "split": "train"},
}
_VERL_FIELDS = {
    "data_source": TEXT,
    "prompt": CHAT,
    "ability": TEXT,
    "reward_model": struct(ground_truth=TEXT, style=TEXT),
    "extra_info": struct(answer=TEXT, index=INT, question=TEXT, split=TEXT),
}

TRAINERS = [
    PublicSet(
        "ms-swift, SFT",
        [{"messages": _OPENAI}, {"messages": _FIRST}, {"messages": TWO_TURNS}],
        [BRIEF_ONE, ONE, LATER],
    ),
    PublicSet(
        "ms-swift, DPO with a rejected response",
        [
            {"messages": _OPENAI, "rejected_response": UNKNOWN},
            {"messages": TWO_TURNS, "rejected_response": UNKNOWN},
            *[{"messages": _FIRST, "rejected_response": UNKNOWN}] * 8,
            {"messages": _FIRST, "rejected_response": ""},
        ],
        [BRIEF_PAIR, LATER_PAIR, *[PAIR] * 8, Reading([[SUM]], {"chosen": "It is 4."}, {"rejected": Reason.EMPTY_CONTENT})],
    ),
    PublicSet(
        "ms-swift, DPO with rejected messages",
        [
            {"messages": _FIRST, "rejected_messages": _DUNNO},
            {"messages": TWO_TURNS, "rejected_messages": _LATER_DUNNO},
            {"messages": TWO_TURNS, "rejected_messages": _DUNNO},
        ],
        [PAIR, LATER_PAIR, Reading([TALK, [SUM]], {"chosen": "It is 7.", "rejected": UNKNOWN})],
    ),
    PublicSet(
        "ms-swift, KTO",
        [{"messages": _OPENAI, "label": False}, {"messages": TWO_TURNS, "label": True}],
        [BRIEF_ONE, LATER],
    ),
    PublicSet(
        "ms-swift, GRPO",
        [{"messages": _OPENAI[:2], "solution": "4"}, {"messages": ASKED_AGAIN, "solution": "7"}],
        refusal="no_final_assistant",
    ),
    PublicSet(
        "ms-swift, GRPO, for a policy",
        [{"messages": _OPENAI[:2], "solution": "4"}, {"messages": ASKED_AGAIN, "solution": "7"}],
        [Reading([[BRIEF, SUM]], {"candidate": ""}), Reading([TALK], {"candidate": ""})],
        prompts=True,
    ),
    PublicSet(
        "ms-swift, query and response with a history",
        [
            {
                "system": "Be brief.",
                "query": "And 3 + 4?",
                "response": "It is 7.",
                "history": [["What is 2 + 2?", "It is 4."]],
            },
            {"query": "And 3 + 4?", "response": "It is 7.", "history": [["What is 2 + 2?", "It is 4."]]},
        ],
        refusal="no known shape",
    ),
    PublicSet(
        "ms-swift's ShareGPT",
        [{**_SWIFT, "conversation": [{"human": "What is 2 + 2?", "assistant": "It is 4."}]}] * 3,
        refusal="no known shape",
    ),
    PublicSet(
        "LLaMA-Factory, alpaca",
        [
            {"instruction": "What is 2 + 2?", "input": "", "output": "It is 4.", "system": "Be brief.", "history": []},
            {"instruction": "And 3 + 4?", "input": "", "output": "It is 7.", "history": [["What is 2 + 2?", "It is 4."]]},
            {"instruction": "What is", "input": "2 + 2?", "output": "It is 4."},
        ],
        [BRIEF_ONE, LATER, Reading([[("user", "What is\n2 + 2?")]], ONE.responses)],
        schema(**strings("instruction", "input", "output", "system"), history=pa.list_(pa.list_(TEXT))),
    ),
    PublicSet(
        "LLaMA-Factory, alpaca, preference",
        [{"instruction": "What is 2 + 2?", "input": "", "chosen": "It is 4.", "rejected": UNKNOWN}] * 3,
        [PAIR] * 3,
    ),
    PublicSet(
        "LLaMA-Factory, alpaca, KTO",
        [{"instruction": "What is 2 + 2?", "input": "", "output": "It is 4.", "kto_tag": True}] * 3,
        [ONE] * 3,
    ),
    PublicSet(
        "LLaMA-Factory, alpaca, preference as a list (its old form)",
        [{"instruction": "What is", "input": "2 + 2?", "output": ["It is 4.", UNKNOWN]}] * 3,
        refusal="no known shape",
    ),
    PublicSet(
        "LLaMA-Factory, sharegpt",
        [
            {"conversations": share(*_ASKED_SHARE), "system": "Be brief.", "tools": ""},
            {"conversations": share(*_ASKED_SHARE, ("human", "And 3 + 4?"), ("gpt", "It is 7.")), "tools": "[]"},
            {"conversations": share(*_ASKED_SHARE)},
        ],
        [BRIEF_ONE, LATER, ONE],
    ),
    PublicSet(
        "LLaMA-Factory, sharegpt, preference",
        [
            {
                "conversations": share(*_ASKED_SHARE, ("human", "And 3 + 4?")),
                "chosen": {"from": "gpt", "value": "It is 7."},
                "rejected": {"from": "gpt", "value": UNKNOWN},
            }
        ]
        * 3,
        [LATER_PAIR] * 3,
    ),
    PublicSet(
        "LLaMA-Factory v1, SFT",
        [{"messages": _v1(_OPENAI)}, {"messages": _v1(TWO_TURNS)}],
        [BRIEF_ONE, LATER],
    ),
    PublicSet(
        "LLaMA-Factory v1, DPO",
        [
            {"chosen_messages": _v1(ANSWERED), "rejected_messages": _v1(_DUNNO)},
            {"chosen_messages": _v1(TWO_TURNS), "rejected_messages": _v1(_LATER_DUNNO)},
        ],
        [
            Reading([[SUM]], {"chosen_messages": "It is 4.", "rejected_messages": UNKNOWN}),
            Reading([TALK], {"chosen_messages": "It is 7.", "rejected_messages": UNKNOWN}),
        ],
        options={"conversation_column": ["chosen_messages", "rejected_messages"]},
    ),
    PublicSet(
        "OpenAI, fine-tuning",
        [
            {"messages": _OPENAI},
            {"messages": [*_FIRST[:1], _FIRST[1] | {"weight": 0}, *TWO_TURNS[2:]], "parallel_tool_calls": False},
            {"messages": _FIRST, "tools": []},
        ],
        [BRIEF_ONE, LATER, ONE],
    ),
    PublicSet(
        "OpenAI, preferences",
        [
            {
                "input": {"messages": _OPENAI[:2], "tools": [], "parallel_tool_calls": True},
                "preferred_output": [{"role": "assistant", "content": "It is 4."}],
                "non_preferred_output": [{"role": "assistant", "content": UNKNOWN}],
            }
        ]
        * 3,
        [BRIEF_PAIR] * 3,
    ),
    PublicSet("Rollouts of NeMo Gym, by themselves", _ROLLOUTS, refusal="hold another response under 'response'"),
    PublicSet(
        "Rollouts of NeMo Gym",
        _ROLLOUTS,
        [BRIEF_ONE, BRIEF_ONE, Reading(rejected={"final": Reason.MISSING_FIELD})],
        options={"prompt_column": "responses_create_params.input", "response_column": ["response.output[-1]"]},
    ),
    PublicSet(
        "Rollouts of NeMo Gym, by their last text",
        _ROLLOUTS,
        [BRIEF_ONE, BRIEF_ONE, Reading(rejected={"final": Reason.MISSING_FIELD})],
        options={
            "prompt_column": "responses_create_params.input",
            "response_column": ["response.output[-1].content[-1].text"],
        },
    ),
    PublicSet(
        "verl's prompts, for a policy",
        [_VERL] * 3,
        [Reading([[SUM]], {"candidate": ""})] * 3,
        schema(**_VERL_FIELDS),
        prompts=True,
    ),
    PublicSet("verl's prompts", [_VERL] * 3, schema=schema(**_VERL_FIELDS), refusal="no known shape"),
    PublicSet(
        "verl's prompts with generations",
        [_VERL | {"responses": ["It is 4.", UNKNOWN]}] * 3,
        [Reading([[SUM]], {"responses[0]": "It is 4.", "responses[1]": UNKNOWN})] * 3,
        schema(**_VERL_FIELDS, responses=pa.list_(TEXT)),
    ),
    PublicSet(
        "verl's dumps of rollouts",
        [
            {
                "input": "system\nBe brief.\nuser\nWhat is 2 + 2?\nassistant\n",
                "output": "It is 4.",
                "gts": "4",
                "score": 1.0,
                "step": 1,
                "acc": True,
            }
        ]
        * 3,
        [BRIEF_ONE] * 3,
    ),
]

PUBLIC_SETS = [*CHAT_LOGS, *PREFERENCES, *OPEN_ASSISTANT, *SYNTHETIC, *TRAINERS]
