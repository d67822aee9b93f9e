"""Which prompts one forward pass answers: where no token sees a later one, a prompt's numbers are there inside a longer one.

By token ids alone, so it is exact whatever a chat template does: one that changes an earlier turn when a later one follows
shares nothing.
"""

from collections.abc import Iterable, Sequence

from actors.records import Prompt


def group_by_prefix(prompts: Iterable[Prompt]) -> list[list[Prompt]]:
    """Cut prompts into runs in which each is the beginning of the next. A run is one forward pass, of its last prompt.

    Nothing changes places, and no token is compared twice: the turns of a conversation come one after the other, growing.
    """
    runs: list[list[Prompt]] = []
    for prompt in prompts:
        if runs and _begins(runs[-1][-1].ids, prompt.ids):
            runs[-1].append(prompt)
        else:
            runs.append([prompt])
    return runs


def _begins(first: Sequence[int], ids: Sequence[int]) -> bool:
    """Whether `ids` begin with `first`, which has a last token to be read at."""
    return len(first) > 0 and ids[: len(first)] == first
