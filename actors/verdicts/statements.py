r"""Every statement of a verdict in a judge's text: one grammar for all families.

A judge may quote a verdict in the form that it was asked for, and give its own in another. So what is read in that form is
compared with all that the text states: a label and its value (`**Score**: 1`, `<score>1`, a heading and a line, a row of a
table, "a score of 1"), a line that is nothing but a value (`[[B]]`, `4, 2`, `★★★☆☆`), a grade that is given ("I rate it 2"),
and who is better. All must agree: of two that differ nobody can tell which is the judge's.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from actors.errors import Unreadable
from actors.records import Reason
from actors.verdicts.numbers import NUMBER, NUMERAL, WORDS, number_in, plain

# What any text may call its only number.
SCORE = r"scored?|rat(?:ing|ed)|graded?|mark|verdict|overall"
_NOUN = "(?:response|assistant|answer|chatbot|model|option|candidate|solution)"
# What any text may call the better of two; `answer` may be the one to a question, "B" among others.
WINNER = rf"""winner|verdict|decision|judge?ment|choice|preference|preferred|pick|vote|(?:better|best)(?:\s(?:{_NOUN}|one))?
  |answer(?=[^\w\n]*[:=>\]-][^\w\[\n]*(?:\[\[|{_NOUN}\b))"""
_TRUE, _FALSE = ("true", "yes", "correct"), ("false", "no", "not true", "untrue", "incorrect")
TRUTHS: Mapping[str, Hashable] = dict.fromkeys(_TRUE, True) | dict.fromkeys(_FALSE, False)
_ORDINALS = ("first", "second", "third", "fourth")

_NEUTRAL = (
    r"the|an?|my|our|your|this|that|its|so|thus|hence|therefore|and|but|final|overall|total|own|actual|real|true|correct(?:ed)?"
    r"|revised|new|fair|honest|right|proper|given|resulting|individual|star|low|poor|bad|weak|high|good|strong|decent|mediocre"
    rf"|solid|moderate|modest|reasonable|{_NOUN}"
)
# Before a number's label, what makes another of it: "style score: 3", "the test score is 90", "the highest score is 10".
_ANOTHER = re.compile(
    rf"""(?:(?:^\W*(?:\d\d?[.)]\W*)?(?:(?:(?-i:[A-Z])\w*\s){{1,2}}(?=(?-i:[A-Z])))?
        |\b(?:the|an?|its|their)\s|[|,;(/]\s?(?=(?-i:[A-Z])))(?!(?:{_NEUTRAL})\b)[^\W\d_]+(?:['’]s)?
      | \b(?:max(?:imum|\.)?|min(?:imum|\.)?|highest|lowest|best|worst|top|perfect|full|possible))\s+$""",
    re.VERBOSE | re.IGNORECASE,
)
_LEAD = r"(?:(?:the|an?|about|only|just|of|(?:final\s)?(?:score|rating|grade|mark))[^\S\n]+){0,4}"
_UNIT = r"(?:[^\S\n]*(?:points?|stars?|marks?)\b)?"
_OF_MANY = rf"{_UNIT}(?:[^\S\n]*(?:/|out[^\S\n]+of|of)[^\S\n]*{NUMBER}{_UNIT})?"
_END = rf"{_OF_MANY}[^\w\n]*?(?:$|[^\w\s](?=\s)|[^\S\n](?:because|since|as|for|due|overall|and|but)\b)"
_IS = r"is|was|(?:would|should|will|must)\sbe"
_GETS = rf"{_IS}|gets|earns|receives|deserves|scores"
# Behind a number: it isn't one of things, as in "Response 1: 3 errors".
_NOT_COUNTED = r"(?![^\S\n]+(?!(?:points|stars|marks|as|is|was|has|does|this|thus)\b)[a-z]+s\b)"
_SUPPOSED = r"(?![^\S\n]*(?:or|and|to|would|could|might|may|must|can|should|need\w*|require\w*|means?|is|was)\b)"
_GIVEN = r"""\b(?:I(?:['’](?:d|ll)|\s(?:would|will|shall|must|can))?\s(?:only\s)?(?:give|rate|grade|score|assign|award)\b
    [^.!?\n\d]{0,40}? | (?:deserves?|merits?|warrants?|worth)\b | (?:it|this)(?:['’]s|\sis)\san?\b)\s"""

_SIDE = rf"""(?:(?:the\s)?(?:{_NOUN}[^\w\n]{{0,3}}(?:[a-d]|\d{{1,3}}|one|two)|(?-i:[A-D])
  |(?:{"|".join(_ORDINALS)})(?:\s(?:{_NOUN}|one))?))(?!\w)"""
# A line with nothing but a response's name, and no brackets, in which a verdict would be.
_LONE = re.compile(rf"[^\w\[({{▢]*(?:the\s)?{_NOUN}\s(?P<side>[a-d]|\d|one|two)[^\w\])}}]*", re.IGNORECASE)
_ADVERBS = r"(?:(?:\w+ly|the|much|far|still|thus|overall|somewhat)\s)*"
_WORSE = ("worse", "worst", "inferior", "weaker")
_COMPARED = re.compile(
    rf"""(?<!\w)(?<!if\s)(?<!whether\s)(?<!when\s)(?<!unless\s)(?P<subject>{_SIDE})\s
      (?:is|was|seems|looks|remains|does|performs|provides|gives|(?:should|is\sto)\sbe)\s{_ADVERBS}
      (?P<how>better|best|superior|preferable|preferred|stronger|winner|{"|".join(_WORSE)})(?:\s(?:{_NOUN}|one)s?)?
      (?:\s(?:than|to)\s(?P<object>{_SIDE}))?(?:$|[^\w\s](?:\s|$)|[^\S\n](?:because|since|as|and|but|overall|by|in\s(?:every|all|most|general))\b)
    | (?<!\w)(?P<winner>{_SIDE})\ ?(?:
        (?:wins|won)\b(?!\s(?:in|on|at|for)\b) | (?:>+|≻|\bbeats\b|\boutperforms\b)\ ?(?P<loser>{_SIDE}))
    | (?<!\w)(?P<low>{_SIDE})\ (?:loses\b|lost\b|<+\ (?P<high>{_SIDE}))
    | (?P<less>{_SIDE})\s(?:is|was)\s(?:not|n['’]t)\s(?:as|so)\sgood\sas\s(?P<more>{_SIDE})
    | (?<!not\s)\b(?:prefer|choose|pick|select|favou?r|vote\sfor|go\swith|lean\stowards?)\s(?P<chosen>{_SIDE})
        (?!['’]|\s(?:in|on|at|for)\b)
    | (?P<tie>\b(?:it|this)(?:['’]s|\sis)\sa\s(?:tie|draw)\b|\bequally\sgood\b)""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_LISTED = re.compile(
    rf"^[^\w\n]*1[.):]\s?({_SIDE})[^\w\n]*\n[^\w\n]*2[.):]\s?({_SIDE})[^\w\n]*$", re.VERBOSE | re.IGNORECASE | re.MULTILINE
)
_RANKED = re.compile(
    rf"(?:ranking|order|best[\s-]to[\s-]wors[te])\W{{1,9}}({_SIDE})\W{{1,9}}({_SIDE})", re.VERBOSE | re.IGNORECASE
)
# Most lines have none of these, and needn't be searched for comparisons, which takes ten times as long.
_COMPARES = re.compile(
    r"better|best|superior|prefer|stronger|winner|wor[sk]|inferior|weak|w[io]n|[<>≻]|beat|outperf|los[et]|choose|pick|select|favou?r"
    r"|vote|go with|lean|as good|tie|draw|equal",
    re.IGNORECASE,
)
_FLAGS = re.VERBOSE | re.IGNORECASE | re.MULTILINE
_LOOKED_BACK = 80
_STARS = re.compile(r"(?<!\d)(?<!\d )([★⭐🌟]+)☆*")


@dataclass(frozen=True, slots=True)
class Claim:
    """A part of a verdict as it was read, and what a text may call it: `labels` is a regular expression.

    `value` are numbers, or what one of the `words` stands for. `alone`: a line with nothing else states it, too.
    """

    labels: str
    value: Hashable
    words: Mapping[str, Hashable] = field(default_factory=dict)
    alone: bool = False


def grade(labels: str, value: float) -> Claim:
    """The claim of a text's only number."""
    return Claim(f"{labels}|{SCORE}" if labels else SCORE, (value,), alone=True)


def choice(labels: str, merit: float, words: Mapping[str, float]) -> Claim:
    """The claim of which of two responses is better, by the merit of the first: 1, 0, or 0.5 for a tie."""
    sides = dict.fromkeys(("A", "1", "one", "first"), 1.0) | dict.fromkeys(("B", "2", "two", "second"), 0.0)
    return Claim(f"{labels}|{WINNER}" if labels else WINNER, merit, sides | dict(words), alone=True)


def grades_of(values: Sequence[float], labels: Sequence[str] = ()) -> list[Claim]:
    """The claims of a number for each response, each called by one of the `labels` or by the response's name."""
    claims = [Claim(r"(?:individual[\W_]{1,8})?(?:scores|ratings|grades)", tuple(values), alone=True)]
    for position, value in enumerate(values):
        number = str(position + 1)
        letter = chr(65 + position) if position < 26 else number
        name = "|".join((number, *list(WORDS)[position + 1 : position + 2], letter))
        names = [
            *labels[position : position + 1],
            rf"(?:the\s)?{_NOUN}[^\w\n]{{0,3}}(?:{name})(?:(?:['’]s)?\s(?:score|rating|grade))?",
            *(rf"{ordinal}(?:\s(?:{_NOUN}|one))?" for ordinal in _ORDINALS[position : position + 1]),
            rf"(?:^[^\w\n]*|(?<=[,;]\s))(?-i:{name})(?=[\])]?\s?[-:)=→|]|\.\s)",
        ]
        claims.append(Claim("|".join(names), (value,)))
    return claims


def label(text: str) -> str:
    """A regular expression of a label in any spelling; empty for one that is no word, such as a bracket or a number.

    One in brackets and capitals, `[RESULT]`, stays so: in other letters it is a word of the text, as in "the result is 42".
    """
    words = [word for word in re.findall(r"[^\W_]+", text) if word != "boxed"]
    # Of "Score: unclear. Score:" the last "Score" is the label.
    last = max((position for position, word in enumerate(words) if word == words[0]), default=0)
    if not any(len(word) > 1 and not word.isdigit() for word in words[last:]):
        return ""
    spelled = r"[\W_]{0,8}".join(map(re.escape, words[last:]))
    return f"(?-i:{spelled})" if text.isupper() and "[" in text else spelled


def without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text with a word in place of what was read.

    A word, so that what stands before and behind it doesn't become one statement.
    """
    for begin, end in sorted(set(spans), reverse=True):
        text = f"{text[:begin]}READ{text[end:]}"
    return text


def check_agrees(text: str, claims: Sequence[Claim], merits: Sequence[float] = ()) -> None:
    """Raise `Unreadable` if a text states anything else than what was read, or that another response is better."""
    text = plain(text).replace(r"\boxed", "▢")
    text = _STARS.sub(lambda stars: f" {len(stars[1])} stars ", text)
    text = "\n".join((text, *_rows_of_tables(text)))
    stated = (_read(claim, statement) == claim.value for claim in claims for statement in _statements(text, claim))
    if not all(stated) or not all(_is_so(merits, *sides) for sides in _comparisons(text)):
        raise Unreadable(Reason.TWO_VERDICTS)


def _statements(text: str, claim: Claim) -> Iterator[str]:
    count = len(claim.value) if isinstance(claim.value, tuple) else 0
    if claim.words:
        value, lead, verb, counted, end = _any_of(claim.words), rf"{_LEAD}(?:{_NOUN}\s)?", _IS, "", ""
    else:
        value = r"[\W_]{1,9}(?:and[\W_]{1,9})?".join([rf"(?:{NUMERAL})(?![.,]\d)(?:\s?/\s?{NUMBER})?"] * count)
        lead, verb, counted, end = _LEAD, _GETS, _NOT_COUNTED, _END
    value = rf"{lead}({value})(?!\w)"
    if claim.labels:
        # ":" and the like say what follows of any word before them. Without them a value ends its line or sentence.
        follows = re.compile(
            rf"""(?:\s*\([^()\n]{{0,60}}\))?(?:
                [^\w\n]{{0,9}}?(?:(?<![-+*/<>!=])=(?!=)|[:|→⇒>\]{{])[\W_]{{0,20}}{value}{counted}
              | [^\w\n]{{1,9}}(?:{verb})[\W_]{{1,20}}{value}{end}
              | \sof[\W_]{{1,9}}{value}{_SUPPOSED}
              | (?:[^\w\n]{{1,9}}|[^\w\n]{{0,9}}\n[\W_]{{0,9}}){value}{_OF_MANY}[^\w\n]*$
              | [^\w\n]{{1,9}}{value}{_OF_MANY}[^\w\n]*[.!;](?=\s))""",
            _FLAGS,
        )
        precedes = re.compile(rf"(?<![\w.,/]){value}{_OF_MANY}\s(?:for|to)\s$", _FLAGS)
        for named in re.finditer(rf"(?<!\w)(?<!\w-)(?<!</)(?:{claim.labels})(?!\w)", text, _FLAGS):
            line = text[text.rfind("\n", 0, named.start()) + 1 : named.start()]
            before = line if len(line) < _LOOKED_BACK else f"0{line[-_LOOKED_BACK:]}"
            stated = follows.match(text, named.end()) or precedes.search(before)
            if stated and (claim.words or not _ANOTHER.search(before)):
                yield next(filter(None, stated.groups()))
    if claim.alone:
        # A number behind "=" or in a box may be the answer to a question that the judge has solved.
        solved = "" if claim.words else "=▢"
        body = _without_headings(text) if claim.words else text
        yield from re.findall(rf"^[^\w\n{solved}]*{value}{_OF_MANY}(?:\soverall)?[^\w\n]*$", body, _FLAGS)
    if claim.alone and count == 1:
        yield from re.findall(rf"{_GIVEN}{value}{_END}", text, _FLAGS)


def _without_headings(text: str) -> str:
    """The text without "**Assistant B:**" and "### Assistant B" over text about B.

    Of 700 answers of o1-mini that JudgeBench's authors publish, 51 were refused by these alone. Each side must have as many
    as the other: one more may be the judge's verdict, beside one that is quoted.
    """
    lines = text.split("\n")
    names = [_LONE.fullmatch(line) for line in lines]
    headings: dict[int, str] = {}
    for place, (line, name) in enumerate(zip(lines[:-1], names[:-1], strict=True)):
        is_marked = name and ("#" in line[: name.start("side")] or ":" in line[name.end("side") :])
        if name and is_marked and lines[place + 1] and not names[place + 1]:
            headings[place] = name["side"].lower()
    counts = Counter(headings.values())
    if len(counts) != 2 or len({*counts.values()}) > 1:
        return text
    return "\n".join("HEADING" if place in headings else line for place, line in enumerate(lines))


def _read(claim: Claim, statement: str) -> Hashable:
    if claim.words:
        return {word.lower(): value for word, value in claim.words.items()}.get(statement.lower())
    numbers = re.sub(rf"/\s?{NUMBER}", "", statement, flags=re.IGNORECASE)
    return tuple(map(number_in, re.findall(NUMERAL, numbers, re.IGNORECASE)))


def _any_of(words: Iterable[str]) -> str:
    # In other case than asked for only where no word follows: of "a close call" the a is no A.
    choice = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    return rf"(?:(?-i:{choice})(?!\w)|(?:{choice})(?![^\S\n]*[\w'’]))"


def _rows_of_tables(text: str) -> Iterator[str]:
    # Each cell as a line of its own, under the name of its column, and under that of its row.
    header: list[str] = []
    for line in text.split("\n"):
        cells = [cell.strip() for cell in line.strip(" |").split("|")] if "|" in line else []
        if not cells or not header:
            header = cells
        elif re.search(r"\w", line):
            yield from (f"{name}: {cell}" for name, cell in zip(header, cells, strict=False))
            yield from (f"{header[0]} {cells[0]}: {cell}" for cell in cells[1:])


def _comparisons(text: str) -> Iterator[tuple[str | None, str | None]]:
    # Who is better than whom: None for all others, and twice None where all are equal.
    yield from (*_LISTED.findall(text), *_RANKED.findall(text))
    for line in filter(_COMPARES.search, text.split("\n")):
        for match in _COMPARED.finditer(line):
            better = match["subject"] or match["winner"] or match["high"] or match["more"] or match["chosen"]
            worse = match["object"] or match["loser"] or match["low"] or match["less"]
            yield (worse, better) if (match["how"] or "").lower() in _WORSE else (better, worse)


def _place_of(side: str) -> int:
    names = [word for word in re.findall(r"\w+", side.lower()) if not re.fullmatch(f"the|one|{_NOUN}", word)]
    name = names[0] if names else "one"
    if name in _ORDINALS:
        return _ORDINALS.index(name)
    number = number_in(name) if name not in "iv" else None
    return ord(name) - ord("a") if number is None else int(number) - 1


def _is_so(merits: Sequence[float], better: str | None, worse: str | None) -> bool:
    # Of responses that weren't compared, such as a third of two, anything may be said.
    if better is None and worse is None:
        return len(set(merits)) < 2
    places = set(range(len(merits)))
    above = {_place_of(better)} if better else places - {_place_of(worse or "")}
    below = {_place_of(worse)} if worse else places - above
    return all(merits[high] > merits[low] for high in above & places for low in below & places)
