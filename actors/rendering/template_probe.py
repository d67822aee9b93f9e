"""What a chat template does, found by rendering probes: whose turns it prints, what it writes around texts, where it ends.

With a template that leaves a turn out, or puts the reward's token elsewhere, every score would be off and none would look
wrong. So a model with such a template is refused at its start.
"""

import itertools
import json
from collections.abc import Collection
from dataclasses import replace

from actors.contracts.family import PRINCIPLE, ChatTemplate, Family, Question
from actors.errors import ModelError, Rejected, SettingsError
from actors.records import Message, Response, Role, ScoreRequest, ToolCall
from actors.rendering.model_tokenizer import ModelTokenizer
from actors.rendering.prompt_writer import PromptFrame, PromptWriter, check_encodable
from actors.rendering.shown_texts import PROBE, ShownTurns, shown_by_family
from actors.rendering.text_safety import CheckedTexts, TextSafety
from actors.text.delimiters import between

_QUESTION, _ANSWER = Message(Role.USER, "question"), Message(Role.ASSISTANT, "answer")
_SYSTEM_PROBE = Message(Role.SYSTEM, PROBE)
_NESTED = {"name_of_member": 7411}
_FALSY: dict[str, object] = {"name_of_false": False, "name_of_zero": 0, "name_of_null": None, "name_of_nothing": {}}
_TEXTS = {"name_of_text": "text of argument", "name_of_list": ["item of argument"]}
_ARGUMENTS = {**_TEXTS, "name_of_object": _NESTED, **_FALSY}
_CALL = ToolCall("name_of_call", json.dumps(_ARGUMENTS), "probe0001")
_KEYS = (*_ARGUMENTS, *_NESTED)
_CALL_WORDS = (_CALL.name, *_KEYS, "text of argument", "7411", "item of argument", "answer of tool")
_CALLED = (_QUESTION, Message(Role.ASSISTANT, "", (_CALL,)), Message(Role.TOOL, _CALL_WORDS[-1], call_id=_CALL.id))
_TOOL_WORDS = ("name_of_tool", "description of tool", "name_of_parameter", "description of parameter")
_PROPERTIES = {_TOOL_WORDS[2]: {"type": "string", "description": _TOOL_WORDS[3]}}
_FUNCTION = {"description": _TOOL_WORDS[1], "parameters": {"type": "object", "properties": _PROPERTIES}}
_TOOL = json.dumps({"type": "function", "function": {"name": _TOOL_WORDS[0], **_FUNCTION}})


def probed_delimiters(family: Family, template: ChatTemplate, control_texts: Collection[str]) -> set[str]:
    """The delimiters that the template, or the user's rubric, writes around texts; none if the family has only its own.

    They are looked for in prompts of one turn and of three, so that those between turns are found as well.
    """
    if not family.probes_delimiters:
        return set()
    speakers = enumerate((Role.USER, Role.ASSISTANT, Role.USER), 1)
    turns = tuple(Message(role, f"{PROBE} of turn {number}") for number, role in speakers)
    delimiters: set[str] = set()
    for context in (turns[-1:], turns):
        for question in _probe_questions(family, context):
            shown = (*(turn.content for turn in context), *question.responses)
            try:
                delimiters |= between(family.text(question, template), shown, control_texts)
            except Rejected:  # not every form can be rendered; `TemplateProbe.check` raises for those that must be
                continue
    return delimiters


class TemplateProbe:
    """Tries out one family with one tokenizer's template."""

    def __init__(self, family: Family, tokenizer: ModelTokenizer, frame: PromptFrame, writer: PromptWriter) -> None:
        self._family = family
        self._tokenizer = tokenizer
        self._frame = frame
        self._writer = writer

    def shown_turns(self) -> ShownTurns:
        """The turns that prompts show. Raises `ModelError` if users' or the assistant's are left out."""
        # A family that writes its own text says itself what it does with system turns; only a template must be tried out.
        if (by_family := shown_by_family(self._family)) is not None:
            return by_family
        roles, unshown = self._template_roles(), self._unshown_calls()
        if Role.SYSTEM not in roles:
            return ShownTurns(roles, calls=unshown[0], tools=unshown[1])
        other = Message(Role.SYSTEM, "other")
        printed = (self._prints(*systems, _QUESTION) for systems in ((_SYSTEM_PROBE, other), (other, _SYSTEM_PROBE)))
        return ShownTurns(roles, self._prints(_QUESTION, _ANSWER, _SYSTEM_PROBE, _QUESTION), all(printed), *unshown)

    def check(self, safety: TextSafety, turns: ShownTurns) -> list[str]:
        """Check plain conversations, and return the texts of their prompts. Raises `ModelError`."""
        texts: list[str] = []
        for question in _probe_questions(self._family, (Message(Role.USER, PROBE),)):
            try:
                CheckedTexts(turns, safety.check).check(question)
                texts.append(self._writer.text(question))
            except Rejected as rejected:
                about = "" if question.principle is None else f" about the principle {question.principle!r}"
                raise ModelError(f"{self._tokenizer.name}: a plain question{about} can't be asked: {rejected}") from rejected
            self._check_begin(texts[-1])
            self._check_end(self._writer.ids(texts[-1]))
        return texts

    def check_system_turn(self, system: str, safety: TextSafety, turns: ShownTurns) -> None:
        name = self._tokenizer.name
        if Role.SYSTEM not in turns.roles or not self._prints(_SYSTEM_PROBE, _QUESTION):
            raise SettingsError(
                f"render.system: the prompts of {name} have no system turn, or always the same one; leave it out"
            )
        try:
            safety.check(system)
            check_encodable(system)
        except Rejected as rejected:
            raise SettingsError(f"render.system: {name} takes no such text: {rejected}") from rejected

    def _template_roles(self) -> frozenset[Role]:
        # A turn of a role whose text the template doesn't print would be dropped without a word.
        probes = {
            Role.USER: (Message(Role.USER, PROBE),),
            Role.ASSISTANT: (_QUESTION, Message(Role.ASSISTANT, PROBE), _QUESTION),
            Role.SYSTEM: (_SYSTEM_PROBE, _QUESTION),
            Role.TOOL: (_QUESTION, _ANSWER, Message(Role.TOOL, PROBE)),
        }
        roles = frozenset(role for role, context in probes.items() if self._prints(*context))
        if missing := {Role.USER, Role.ASSISTANT} - roles:
            raise ModelError(
                f"the chat template of {self._tokenizer.name} doesn't print what {' and '.join(sorted(missing))} "
                "say, so no conversation can be judged with it: give --chat-template FILE with one for plain conversations"
            )
        return roles

    def _unshown_calls(self) -> tuple[str, str]:
        """What of a call, and of a tool, the template doesn't print; empty if it prints all.

        It is given a call's arguments as an object, or, if it makes no JSON of that, as their text.
        """
        unshown = self._unprinted(_CALLED, (), _CALL_WORDS)
        if unshown:
            self._tokenizer.takes_text = True
            if self._unprinted(_CALLED, (), _CALL_WORDS):
                self._tokenizer.takes_text = False
            else:
                unshown = ""
        return unshown, self._unprinted((_QUESTION,), (_TOOL,), _TOOL_WORDS)

    def _unprinted(self, context: tuple[Message, ...], tools: tuple[str, ...], words: Collection[str]) -> str:
        question, *_ = _probe_questions(self._family, context, "answer")
        try:
            text = self._writer.unchecked_text(replace(question, tools=tools))
        except Rejected as rejected:
            return f"the template refuses it: {rejected.detail}"
        if any(repr(key) in text for key in _KEYS):
            return "the template writes arguments as Python does, and not as JSON"
        unshown = [word for word in words if word not in text]
        return f"the template leaves out {', '.join(map(repr, unshown))}" if unshown else ""

    def _prints(self, *context: Message) -> bool:
        question, *_ = _probe_questions(self._family, context, "answer")
        try:
            return PROBE in self._writer.unchecked_text(question)
        except Rejected:
            return False

    def _check_begin(self, text: str) -> None:
        # In a row, before the first turn's text: BOS may begin every turn, as SmolLM2's `<|im_start|>` does, or end it.
        runs = itertools.groupby(self._tokenizer.ids([text.partition(PROBE)[0]])[0])
        written = next((len(list(run)) for token, run in runs if token == self._tokenizer.begin), 0)
        # Where the tokenizer itself prepends BOS to a text, its model was trained with one; else the template may write it.
        allowed = (1,) if self._tokenizer.prepended else (0, 1)
        if self._family.begins is not None:
            allowed = (self._family.begins,)
        if written not in allowed:
            by_family = f"the family {self._family.name}, whose `begins` says how often its authors write it,"
            writer = "the template" if shown_by_family(self._family) is None else by_family
            raise ModelError(
                f"{self._tokenizer.name}: a conversation must begin with {self._tokenizer.pretrained.bos_token} "
                f"{' or '.join(map(str, allowed))} times, and {writer} writes it {written} times; every score would be "
                "another one than its authors read"
            )

    def _check_end(self, ids: list[int]) -> None:
        """Raise `ModelError` unless the token where the reward is read stands once, at a prompt's end or a step's."""
        name, tokens_of = self._tokenizer.name, self._tokenizer.pretrained.convert_ids_to_tokens
        try:
            self._frame.check(ids)
        except Rejected as rejected:
            read_at = list(self._frame.appended or self._frame.needed)
            about = f"a prompt ends with {tokens_of(ids[-4:])}, token {ids[-1]}"
            if read_at:
                about = f"it is read at {tokens_of(read_at)}; {about}"
            raise ModelError(f"{name}: {rejected.detail} ({about})") from rejected
        token = self._family.last_token
        if token is not None and ids[-1:] != list(self._tokenizer.known_ids([token]).values()):
            raise ModelError(
                f"{name}: {token}, where the reward is read, must be one token and the prompt's last, but the tokenizer "
                f"makes {tokens_of(self._writer.ids(token))} of it"
            )
        step_ends = self._frame.step_ends(ids)
        if self._family.step_token is not None and len(step_ends) != 1:
            raise ModelError(
                f"{name}: {self._family.step_token}, which ends a step, must be one token and stand once after a single "
                f"step, but the prompt has it {len(step_ends)} times"
            )


def _probe_questions(family: Family, context: tuple[Message, ...], word: str = PROBE) -> list[Question]:
    """The family's questions about as many responses as it is tried out with; all texts hold the `word`."""
    principles = (family.example_field(PRINCIPLE, word),) if family.needs_principles else ()
    fields = {name: family.example_field(name, word) for name in family.field_names}
    questions: list[Question] = []
    for count in family.counts:
        responses = tuple(Response(f"{position}", f"{word} of response {position}") for position in range(count))
        questions += family.questions(ScoreRequest(context, responses, principles, fields=fields), range(count))
    return questions
