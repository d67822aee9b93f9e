"""Which prompts share a forward pass: in a causal model, a prompt's outputs are also those at its place in a longer prompt.

Decided by token ids alone, so it is exact whatever a chat template does: prompts of a template that changes an earlier turn
when a later one follows share nothing. A conversation whose n turns are all judged is then one pass over its tokens instead
of n passes, whose lengths add up to about n / 2 times as many.
"""

from collections.abc import Iterable, Sequence

from actors.records import Prompt


def group_by_prefix(prompts: Iterable[Prompt]) -> list[list[Prompt]]:
    """Cut prompts into runs in which each is the beginning of the next. A run is one forward pass, of its last prompt.

    The order stays, and only neighbours are compared: a conversation's prompts follow each other, each longer than the last.
    So a prompt's tokens are compared with the next one's alone, and not with those of every earlier prompt.
    """
    runs: list[list[Prompt]] = []
    for prompt in prompts:
        if runs and _is_prefix(runs[-1][-1].ids, prompt.ids):
            runs[-1].append(prompt)
        else:
            runs.append([prompt])
    return runs


def _is_prefix(first: Sequence[int], ids: Sequence[int]) -> bool:
    """Whether `ids` begin with `first`, which mustn't be empty: the outputs are read at its last token."""
    return len(first) > 0 and ids[: len(first)] == first
