"""The settings of a judge that the user defines in YAML: a prompt for any chat model, and how its text is parsed."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from actors.settings.base import Settings
from actors.settings.grader import read_rubric
from actors.text.json_schema import check_schema
from actors.text.patterns import groups_of, linear

WINNER = "winner"
_SIDE = re.compile(r"(\w+)_([12])")
# Keywords beside which properties of an object may be described elsewhere, too.
_JOINED = frozenset({"allOf", "anyOf", "oneOf", "if", "$ref", "unevaluatedProperties"})
_CONVERSATION = ("conversation", "turns", "tools")
_ONE, _TWO = ("response",), ("response_1", "response_2")
# Variables that have no text themselves: what they hold is read by name, at any depth.
_ROOTS = ("row",)


# Parsing takes longer than rendering, and the names are needed for each question.
@lru_cache(maxsize=64)
def _variables_of(template: str) -> frozenset[str]:
    """The undeclared variables of a Jinja template; of `_ROOTS` the dotted names of what is read of them."""
    from jinja2 import meta, nodes  # only who has a rubric needs it
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def path_of(node: nodes.Node) -> list[str]:
        if isinstance(node, nodes.Name):
            return [node.name]
        if isinstance(node, nodes.Getattr) and (path := path_of(node.node)):
            return [*path, node.attr]
        if isinstance(node, nodes.Getitem) and (path := path_of(node.node)):
            key = node.arg.value if isinstance(node.arg, nodes.Const) else None
            # Of `row['a.b']`, `row.a[0]` and the like the root alone, which no prompt may show: they aren't read by a name.
            return [*path, key] if isinstance(key, str) and "." not in key else path[:1]
        return []

    def read_of_roots(node: nodes.Node) -> Iterator[str]:
        path = path_of(node)
        if path and path[0] in roots:
            yield ".".join(path)
        else:
            for inner in node.iter_child_nodes():
                yield from read_of_roots(inner)

    jinja = ImmutableSandboxedEnvironment()
    tree = jinja.parse(template)
    undeclared = meta.find_undeclared_variables(tree) - jinja.globals.keys()
    roots = undeclared & {*_ROOTS}
    return frozenset({*(undeclared - roots), *read_of_roots(tree)})


def _closed(schema: Any) -> Any:
    # A schema whose objects have no properties that it doesn't name, unless it says so; below `_JOINED` it is as it was.
    if not isinstance(schema, dict) or _JOINED & schema.keys():
        return schema
    closed = {name: _closed(value) if name == "items" else value for name, value in schema.items()}
    if isinstance(properties := schema.get("properties"), dict):
        closed["properties"] = {name: _closed(value) for name, value in properties.items()}
        closed.setdefault("additionalProperties", False)
    return closed


def _listed(kind: dict[str, Any]) -> list[float]:
    # `type`, as a bool is an instance of int: an enum with true in it is no scale.
    listed: list[Any] = kind.get("enum", [])
    return listed if all(type(value) in (int, float) for value in listed) else []


class VerdictTokens(Settings):
    """Two answers, each one token, of which the log-probabilities are compared where the model gave one of them."""

    after: str = Field(min_length=1)
    """what stands right before the answer, which ends the text"""
    positive: str = Field(default=" Yes", min_length=1)
    """the token that counts"""
    negative: str = Field(default=" No", min_length=1)
    """the token that is subtracted"""

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.positive == self.negative:
            raise ValueError(f"positive and negative are both {self.positive!r}, so every reward would be 0")
        return self


class RubricSettings(Settings):
    """A prompt, and one way to read what comes of it: `pattern`, `json_schema` or `verdict`.

    Names of a pattern's groups, or of a schema's properties, become named outputs; of two responses they end in `_1` and
    `_2`, or are `winner`.
    """

    shows: Literal["one", "two", "row"] = "one"
    """how many responses a prompt shows; row: none, but columns of the row, which are judged"""
    system: str | None = None
    """Jinja: the system turn"""
    prompt: str = Field(pattern=r"\S")
    """Jinja: the user's turn, of `conversation`, `turns`, `response` or `response_1` and `response_2`, `principle`,
    `reference`, columns of the row as `row.NAME`, and fields that --field NAME=COLUMN names"""
    pattern: str | None = Field(default=None, min_length=1)
    """regular expression, in RE2's syntax, that finds the verdict"""
    json_schema: dict[str, Any] | None = None
    """JSON schema that the answer must meet; without `additionalProperties`, its objects have no others"""
    verdict: VerdictTokens | None = None
    """answers by whose log-probability it is read"""
    low: float | None = None
    """least number on the scale; not needed where the schema has `minimum` or `enum`"""
    high: float | None = None
    """greatest number on the scale; not needed where the schema has `maximum` or `enum`"""
    winners: dict[str, Literal["first", "second", "tie"]] = Field(default_factory=dict)
    """what each value of `winner` stands for"""
    words: dict[str, dict[str, float]] = Field(default_factory=dict)
    """properties of json_schema that the answer gives as words: what each of these counts"""
    temperature: float = Field(default=0.0, ge=0, le=2)
    """sampling temperature of a single answer"""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """sample from this share of the probability"""
    max_tokens: int = Field(default=4096, ge=1)
    """longest answer in tokens, reasoning included"""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        return read_rubric(value)

    @field_validator("system", "prompt")
    @classmethod
    def _is_jinja(cls, text: str | None) -> str | None:
        from jinja2 import TemplateSyntaxError  # only who has a rubric needs it
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        try:
            ImmutableSandboxedEnvironment().parse(text or "")
        except TemplateSyntaxError as error:
            raise ValueError(f"not a valid Jinja template: {error}, in line {error.lineno}") from error
        return text

    @field_validator("pattern")
    @classmethod
    def _is_pattern(cls, text: str | None) -> str | None:
        if text is None:
            return None
        compiled = linear(text)
        if not compiled.groups:
            raise ValueError("it needs a group around the verdict, such as ([0-9]+)")
        if compiled.groups > 1 and not compiled.groupindex:
            raise ValueError(
                f"it has {compiled.groups} groups, and none says which of them holds the verdict: name it, such as "
                "(?P<score>[0-9]+)"
            )
        return text

    @field_validator("json_schema")
    @classmethod
    def _is_schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if schema is None else dict(_closed(check_schema(schema)))

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        readers = [name for name in ("pattern", "json_schema", "verdict") if getattr(self, name) is not None]
        if len(readers) != 1:
            raise ValueError(f"it needs one of pattern, json_schema and verdict, and has {' and '.join(readers) or 'none'}")
        if self.verdict is None:
            self._check_names()
        elif self.shows == "two":
            raise ValueError("verdict reads an answer about one response; two are read by pattern or json_schema")
        self._check_prompt()
        return self

    def _check_names(self) -> None:
        names = self.names
        numbers = [name for name in names if name != WINNER]
        if not names:
            raise ValueError("json_schema has no property with a number, a boolean or `winner` in it")
        # First: a group for the winner with another name has no scale either, and this message says what to do.
        self._check_winners()
        self._check_words()
        if wrong := [name for name in names if not name.isidentifier()]:
            raise ValueError(f"{wrong[0]!r} can't be the name of an output: letters, digits and _ alone")
        for name in (name for name in numbers if name not in {*self.truths, *self.words}):
            low, high = self.scale(name)
            if low is None or high is None:
                raise ValueError(
                    f"{name} has no scale, and what isn't on it fails: give low and high, or in json_schema its minimum and "
                    "maximum, or enum"
                )
            if low >= high:
                raise ValueError(f"{name} goes from {low:g} to {high:g}: low must be less than high")
        if WINNER in names and (self.shows != "two" or not self.winners):
            raise ValueError("`winner` is of two responses (shows: two), and `winners` says what its values stand for")
        if self.shows == "two":
            sides = {match[1]: match[2] for name in numbers if (match := _SIDE.fullmatch(name))}
            if wrong := [name for name in numbers if not _SIDE.fullmatch(name)]:
                raise ValueError(f"of two responses, a number is called like score_1 and score_2, not {wrong[0]}")
            if lacking := [side for side in sides if not {f"{side}_1", f"{side}_2"} <= set(numbers)]:
                raise ValueError(f"{lacking[0]} is there for one of the two responses alone")
            # One number decides by itself; of several, a sum is a rule that the rubric would have to say.
            if len(sides) > 1 and WINNER not in names:
                raise ValueError(f"{' and '.join(sides)} don't say which response is better; give it a `winner`, too")

    def _check_words(self) -> None:
        for name in self.words:
            if name not in self._properties:
                raise ValueError(f"`words` says what the words of {name} count, and json_schema has no property {name}")
            if lacking := [value for value in self._listed(name) if value not in self.words[name]]:
                raise ValueError(f"{name} may be {lacking[0]!r}, and `words` doesn't say what that counts")

    def scale(self, name: str) -> tuple[float | None, float | None]:
        """The least and the greatest number of a name: by the schema, else `low` and `high`; None where neither says it.

        Raises `ValueError` if both say it, and differ.
        """
        kind = self._properties.get(name, {})
        listed = _listed(kind)
        limits = (min(listed), max(listed)) if listed else (kind.get("minimum"), kind.get("maximum"))
        for bound, of_rubric, of_schema in zip(("low", "high"), (self.low, self.high), limits, strict=True):
            if None not in (of_rubric, of_schema) and of_rubric != of_schema:
                raise ValueError(
                    f"{bound} is {of_rubric:g}, and json_schema says {of_schema:g} of {name}: leave {bound} out"
                )
        return self.low if limits[0] is None else limits[0], self.high if limits[1] is None else limits[1]

    def _check_winners(self) -> None:
        if not self.winners:
            return
        if WINNER not in self.names:
            raise ValueError(
                f"`winners` says what the values of `winner` stand for, and there is none: what is read is "
                f"{', '.join(self.names)}. Call the group or property that names the better response `winner`"
            )
        lacking = [value for value in self._listed(WINNER) if isinstance(value, str) and value not in self.winners]
        if lacking and self.shows == "two":
            raise ValueError(
                f"`winner` may be {', '.join(lacking)}, and `winners` doesn't say what that stands for: give each value "
                "first, second or tie"
            )

    def _listed(self, name: str) -> list[Any]:
        return list(self._properties.get(name, {}).get("enum", []))

    @property
    def _properties(self) -> dict[str, dict[str, Any]]:
        properties = (self.json_schema or {}).get("properties", {})
        return {name: kind for name, kind in properties.items() if isinstance(kind, dict)}

    def _check_prompt(self) -> None:
        shown = {"one": _ONE, "two": _TWO, "row": ()}[self.shows]
        hidden, used = {*_ONE, *_TWO} - {*shown}, self.variables
        if unknown := [name for name in (*sorted(hidden), *_ROOTS) if name in used]:
            raise ValueError(
                f"the prompt has {', '.join(f'{{{{ {name} }}}}' for name in unknown)}, which isn't there where it shows "
                f"{self.shows}: there are {', '.join((*_CONVERSATION, *shown, 'principle', 'reference'))}, row.NAME for a "
                "column of the row, and fields that --field NAME=COLUMN names"
            )
        fields = self.field_names
        if inner := [name for name in fields if any(other.startswith(f"{name}.") for other in fields)]:
            raise ValueError(f"the prompt reads {inner[0]} as a text, and something inside of it: name the texts alone")
        # A rubric of columns has no response: at least one column must be there to be judged.
        judged = shown or ("row.NAME",)[: not any(name.startswith("row.") for name in used)]
        if lacking := [name for name in judged if name not in used]:
            raise ValueError(
                f"the prompt has no {' and no '.join(f'{{{{ {name} }}}}' for name in lacking)}, which is judged"
            )

    @property
    def variables(self) -> set[str]:
        """The variables of the prompt, each by its name; columns of the row as `row.NAME`."""
        return {name for text in (self.system or "", self.prompt) for name in _variables_of(text)}

    @property
    def field_names(self) -> tuple[str, ...]:
        """The variables that are fields of a request: texts beside conversation, responses and principle."""
        return tuple(sorted(self.variables - {*_CONVERSATION, *_ONE, *_TWO, "principle"}))

    @property
    def truths(self) -> set[str]:
        # The names of boolean properties, to which the scale doesn't apply.
        return {name for name, kind in self._properties.items() if kind.get("type") == "boolean"}

    @property
    def names(self) -> tuple[str, ...]:
        """The values that are read: a pattern's groups, or a schema's numbers, booleans and winner."""
        if self.verdict is not None:
            return ("score",)
        if self.pattern is not None:
            return tuple(groups_of(self.pattern)) or ("score",)
        kinds, texts = ("number", "integer", "boolean"), {WINNER, *self.words}
        return tuple(
            name for name, kind in self._properties.items() if name in texts or kind.get("type") in kinds or _listed(kind)
        )

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        # The least and the greatest number of each output; a difference of log-probabilities has none.
        ends: dict[str, list[float]] = {}
        for name in {*self.names} - {WINNER} if self.verdict is None else ():
            values = self.words[name].values() if name in self.words else (0, 1) if name in self.truths else self.scale(name)
            ends.setdefault(self._output(name), []).extend(float(value) for value in values if value is not None)
        return {name: (min(values), max(values)) for name, values in ends.items()}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The named outputs of a response."""
        return tuple("win" if name == WINNER else name for name in dict.fromkeys(map(self._output, self.names)))

    def _output(self, name: str) -> str:
        return match[1] if self.shows == "two" and (match := _SIDE.fullmatch(name)) else name
