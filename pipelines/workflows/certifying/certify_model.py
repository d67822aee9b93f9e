"""The certificate job: how far what should not matter moves a model's rewards.

1. Draw rows, and of each a question: a prompt with its responses, one of which is to be changed.
2. Make each change of each question (`changes`), and leave out what the model is given as the same prompt, or refuses.
3. Write questions as rows, and score them by the ordinary run; the originals once more with another seed, if one matters.
4. Pair the rewards, measure each effect, and write the certificate.
"""

import json
import operator
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict
from random import Random
from typing import Any, NamedTuple

from actors.contracts.family import PRINCIPLE
from actors.contracts.judge import Judge
from actors.contracts.showings import Shows
from actors.errors import OutputError, SettingsError, SourceError
from actors.records import Message, RenderedRequest, Role, ScoreRequest
from actors.reward_model import resolve_model
from actors.settings.verifier import is_verifier
from actors.text.tool_calls import as_messages
from pipelines.data import storage
from pipelines.data.corpus.assay_folders import CERTIFIED
from pipelines.data.corpus.readers import RECORD
from pipelines.data.formats import OwnColumns, RowRequests
from pipelines.data.storage import error_text
from pipelines.folders.run_folder.columns import REASON, REWARD
from pipelines.folders.run_folder.manifest import Manifest, read_manifest
from pipelines.folders.run_folder.member_runs import MEMBERS, is_fake
from pipelines.folders.run_folder.parts import Parts, read_tables
from pipelines.results.certificates.certificate import CONFIDENCE, ORDER, SEED, Certificate, Pair, Trial, measure
from pipelines.run.prepare import resolve_run
from pipelines.run.prepare.row_sample import read_sample
from pipelines.run.prepare.score_requests import Preparation, renderer
from pipelines.run.runtime.progress import Progress
from pipelines.run.scoring import score_corpus
from pipelines.settings.certify_settings import CertifySettings
from pipelines.settings.run_settings import CorpusSettings, ScoreSettings, Turns
from pipelines.workflows.certifying.changes import CHANGES, Left, apply

ORIGINAL = "original"
_OF_RUN = ("render", "engine", "work", "store", "overwrite", "accept_versions")
_BEGINNING = b'{"question": '  # of each row that is written: another file of that name isn't ours to replace
_IMPOSSIBLE = {Left.SAME_PROMPT, Left.ONE_RESPONSE, Left.NOT_SAMPLED}
Key = tuple[int, str]  # the number of a question, and the name of a change
Counts = Mapping[str, Counter[str]]  # by change and reason, questions without a pair; of `ORIGINAL` rows without a question
Rewards = Mapping[Key, Sequence[tuple[float | None, str | None]]]  # of each response its reward, or the reason for none


class Question(NamedTuple):
    """A prompt with its responses, of which the one at `at` is changed."""

    request: ScoreRequest
    at: int


def certify(settings: CertifySettings, progress: Progress | None = None) -> Certificate:
    """Certify a model, or resume a certificate that was interrupted. Whether it passes is for its effects to say.

    Raises a `UserError` if it can't be done as given, and what the runs raise.
    """
    progress = progress or Progress()
    if is_verifier(settings.model.model):
        raise SettingsError(f"{settings.model.model} compares by code, and has no bias to certify: give a head or a judge")
    settings = settings.model_copy(update={"corpus": _corpus(settings)})
    plan = resolve_run.resolve(settings, notify=progress.noted)
    progress.planned(plan.shape_found)
    # What is certified is worth reading a large row group to its end, as the start of a run isn't.
    sample = read_sample(plan.files, settings.corpus.max_record_bytes, reach=sys.maxsize)
    counts: Counts = defaultdict(Counter)
    questions = _questions(map(plan.preparation.row_shape.requests, sample.rows), counts)
    requests = _changed(plan.preparation, questions, counts)
    originals = {key: request for key, request in requests.items() if key[1] == ORIGINAL}
    if not originals:
        raise SourceError(f"{', '.join(settings.corpus.inputs)} has no row with a response to certify on")
    progress.noted(f"{len(originals):,} questions with their changes are {len(requests):,} rows to be scored")
    manifest, rewards = _score(settings, settings.model, "rows", requests, progress)
    family = plan.preparation.model.family
    # A seed decides texts that are sampled, and the order of lists.
    if isinstance(family, Judge) and (family.recorded(1)["temperature"] or family.shows is Shows.ALL):
        judge = settings.model.judge.model_copy(update={"seed": settings.model.judge.seed + 1})
        _, again = _score(settings, settings.model.model_copy(update={"judge": judge}), SEED, originals, progress)
        rewards = {**rewards, **{(number, SEED): answers for (number, _), answers in again.items()}}
    else:
        counts[SEED][Left.NOT_SAMPLED] = len(originals)
    abouts = {change.name: change.about for change in CHANGES} | {SEED: "the judge draws by another seed"}
    # Of a judge that shows responses together, it is the rows that have no order, and not the judge.
    impossible = _IMPOSSIBLE - ({Left.ONE_RESPONSE} if family.together else set())
    trials = [
        pair_rewards(name, about, questions, rewards, counts[name], impossible=impossible) for name, about in abouts.items()
    ]
    # One text says a single response's number: it is no mean, and no probability.
    single_verdicts = isinstance(family, Judge) and family.votes == 1 and not family.marks
    deviation, effects = measure(trials, original_rewards(rewards), single_verdicts)
    certificate = Certificate(
        *(settings.model.model, settings.corpus.inputs, len(originals), dict(counts[ORIGINAL]), deviation, CONFIDENCE),
        *(effects, is_fake(manifest), manifest.identity, manifest.made_with, len(sample.rows), len(plan.files)),
        sample.beginnings,
    )
    CERTIFIED.write(settings.output, CERTIFIED.marked(asdict(certificate)))
    return certificate


def _corpus(settings: CertifySettings) -> CorpusSettings:
    """The corpus; of a scored folder the files that it was made of, read as they were."""
    corpus = settings.corpus
    (first, *more) = corpus.inputs
    manifest = read_manifest(first) if not more and storage.is_folder(first) else None
    if manifest is None:
        return corpus
    if manifest.columns.drawn:
        raise SourceError(f"{first} holds candidates of a policy: give what `filter --rows responses` makes of it")
    first_run = next(iter(manifest.identity.get(MEMBERS, {}).values()), {"identity": manifest.identity})["identity"]
    reading: dict[str, Any] = {"format": first_run["shape"], "limit": first_run["limit"], "turns": Turns(first_run["turns"])}
    # Fields that were read from a column of another name. The others are found by themselves, if this model reads them.
    named = {name: of for name, of in first_run["fields"].items() if of not in (name, name.removeprefix("row."))}
    if named:  # by another model, perhaps, whose fields would be refused if this one doesn't read them
        family = resolve_model(settings.model, settings.render).family
        names = {*family.field_names, *((PRINCIPLE,) if family.takes_principles else ())}
        reading["field"] = {name: of for name, of in named.items() if name in names}
    if first_run["own_columns"]:
        columns = OwnColumns.read(first_run["own_columns"])
        reading |= {"prompt_column": columns.prompt, "response_column": columns.responses or None, "format": None}
        reading |= {"conversation_column": columns.conversations or None, "system_column": columns.system}
    given_here = corpus.model_dump(exclude_defaults=True)
    reading = {name: value for name, value in reading.items() if name not in given_here}
    return corpus.model_copy(update={"inputs": tuple(file.path for file in manifest.files), **reading})


def _questions(rows: Iterable[RowRequests], counts: Counts) -> dict[int, Question]:
    # One of each row, so that pairs are of different rows: intervals take them for independent.
    questions: dict[int, Question] = {}
    for number, row in enumerate(rows):
        if row.requests:
            # By what the row says, and not by its place: on fewer rows it is the same question.
            draw = Random("".join(request.prompt_hash for request in row.requests))
            request = draw.choice(row.requests)
            questions[number] = Question(request, draw.randrange(len(request.responses)))
        else:
            counts[ORIGINAL][row.rejected[0].reason.value] += 1
    return questions


def _changed(preparation: Preparation, questions: Mapping[int, Question], counts: Counts) -> dict[Key, ScoreRequest]:
    """The questions as they are and changed, without what can't be judged or is the same prompt, which is counted."""
    made: dict[Key, ScoreRequest | Left] = {(number, ORIGINAL): request for number, (request, _) in questions.items()}
    made |= {(number, each.name): apply(each, *question) for number, question in questions.items() for each in CHANGES}
    requests = {key: request for key, request in made.items() if not isinstance(request, Left)}
    render = renderer(preparation.model, preparation.render).render
    rendered = dict(zip(requests, render(list(requests.values())), strict=True))
    for (number, name), request in made.items():
        if (number, ORIGINAL) not in requests:  # it was refused, and is counted: originals come first
            requests.pop((number, name), None)
            continue
        why = request if isinstance(request, Left) else _why_unshown(rendered[number, name], rendered[number, ORIGINAL])
        if why is not None and (name, why) != (ORIGINAL, Left.SAME_PROMPT):
            requests.pop((number, name), None)
            counts[name][str(why)] += 1
    return requests


def _why_unshown(changed: RenderedRequest, original: RenderedRequest) -> str | None:
    refused = [response.reason.value for response in changed.responses if response.reason is not None]
    # Sorted: of a reversed order a judge that sees each response alone is given the same prompts.
    prompts = (sorted((tuple(prompt.ids), prompt.texts) for prompt in each.prompts) for each in (changed, original))
    return refused[0] if refused else Left.SAME_PROMPT if operator.eq(*prompts) else None


def _score(
    settings: CertifySettings, model: Any, name: str, requests: Mapping[Key, ScoreRequest], progress: Progress
) -> tuple[Manifest, Rewards]:
    # Columns are numbered: a dot in the name of a field would make a path of the name of its column.
    fields = sorted({name for request in requests.values() for name in request.fields})
    columns = {field: f"field_{number}" for number, field in enumerate(fields)}
    named = {**columns, **({PRINCIPLE: "principles"} if any(request.principles for request in requests.values()) else {})}
    content = b"".join(_row(key, request, columns) for key, request in requests.items())
    folder, file = storage.folder(storage.absolute(settings.output)), f"{name}.jsonl"
    try:
        folder.make()
        if file in folder.names() and (earlier := folder.read(file)) != content:
            if not earlier.startswith(_BEGINNING):
                raise OutputError(f"{folder.file(file)} isn't of a certificate, and would be replaced: give another --out")
            if not settings.overwrite:
                raise OutputError(
                    f"{settings.output} holds a certificate on other rows; --overwrite replaces it, or give --out"
                )
        folder.replace(file, content)
    except OSError as error:
        raise OutputError(f"{settings.output} can't be written: {error_text(error)}") from error
    corpus = CorpusSettings(inputs=(folder.file(file),), conversation_column=("conversations[]",), field=named)
    output, of_run = folder.sub(f"scored-{name}").path, {field: getattr(settings, field) for field in _OF_RUN}
    run = ScoreSettings(corpus=corpus, output=output, model=model, text=False, **of_run)
    score_corpus.score(run, progress).check_scored()
    manifest = read_manifest(output)
    assert manifest is not None  # the run has written it
    parts, rewards = Parts(output, manifest.run), defaultdict[Key, list[Any]](list)
    for table in (table for part in parts.listing() for table in read_tables(parts.path(part), [RECORD, REWARD, REASON])):
        for response in table.to_pylist():
            row = json.loads(response[RECORD])
            rewards[row["question"], row["change"]].append((response[REWARD], response[REASON]))
    return manifest, rewards


def _row(key: Key, request: ScoreRequest, columns: Mapping[str, str]) -> bytes:
    """A question as a line of JSON: a conversation for each response, and what the model reads beside it."""
    turns = [Message(Role.ASSISTANT, response.content, response.calls) for response in request.responses]
    conversations = [as_messages((*request.context, turn)) for turn in turns]
    beside = {"tools": list(map(json.loads, request.tools)), "principles": list(request.principles)}
    fields = {columns[name]: text for name, text in request.fields.items()}
    row = {"question": key[0], "change": key[1], "conversations": conversations, **fields}
    return json.dumps({**row, **{name: value for name, value in beside.items() if value}}).encode() + b"\n"


def original_rewards(rewards: Rewards) -> list[float]:
    """All rewards of the questions as they are, by whose standard deviation effects are measured."""
    originals = (answers for (_, name), answers in rewards.items() if name == ORIGINAL)
    return [reward for answers in originals for reward, _ in answers if reward is not None]


def pair_rewards(
    name: str,
    about: str,
    questions: Mapping[int, Question],
    rewards: Rewards,
    left: Counter[str],
    *,
    impossible: Set[str] = _IMPOSSIBLE,
) -> Trial:
    """The pairs of a change. A question of which a reward is missing gives none, and is counted with the reason.

    With no other reasons than `impossible` ones the model can't have the effect.
    """
    pairs: list[Pair] = []
    for number, (request, at) in questions.items():
        if (number, name) in rewards:
            count = len(request.responses)  # a row that can't be read has one answer, which says why
            before, after = ((list(rewards[number, each]) * count)[:count] for each in (ORIGINAL, name))
            after = after[::-1] if name == ORDER else after  # so that both are of the same responses, place by place
            needed = (0, -1) if name == ORDER else (at,)  # an order's effect is what the last gains more than the first
            moments = {ORIGINAL: before, "changed": after}.items()
            missing = [f"{when} {of[place][1]}" for when, of in moments for place in needed if of[place][0] is None]
            left.update(missing[:1])
            if not missing:
                pairs.append(Pair([reward for reward, _ in before], [reward for reward, _ in after], at))
    return Trial(name, about, pairs, dict(left), impossible=not pairs and {*left} <= impossible)
