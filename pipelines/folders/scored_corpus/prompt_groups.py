"""Groups candidates that answer one prompt."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

from pipelines.folders.scored_corpus.candidates import Candidate
from pipelines.folders.scored_corpus.read_back import CandidateOrLeftOut

Groups = Iterator[Sequence[CandidateOrLeftOut]]


def groups_by_row(rows: Iterable[Sequence[CandidateOrLeftOut]]) -> Groups:
    """The groups of each row by itself, whose responses may answer several prompts."""
    return itertools.chain.from_iterable(group_by_prompt([row]) for row in rows)


def group_by_prompt(rows: Iterable[Sequence[CandidateOrLeftOut]]) -> Groups:
    """Group neighbours that answer the same prompt. Responses that aren't candidates join the group before them.

    Those of one prompt must be neighbours, as a shuffle brings them.
    """
    group, prompt = list[CandidateOrLeftOut](), None
    for response in itertools.chain.from_iterable(rows):
        if isinstance(response, Candidate):
            # None: no candidate yet, so what was left out before stays with the first one.
            if prompt not in (None, response.prompt_hash):
                yield group
                group = []
            prompt = response.prompt_hash
        group.append(response)
    if group:
        yield group
