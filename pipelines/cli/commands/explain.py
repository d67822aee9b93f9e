"""The commands `models` and `models explain`: facts about reward models, by id, and by their files if they are local."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import Family
from actors.contracts.judge import Judge
from actors.errors import ModelError
from actors.reward_model import families, family_known, family_of
from actors.settings.presets import presets
from actors.settings.replica import Pairs


def explanation(model: str, family: str | None = None) -> dict[str, Any]:
    """Facts about a model by their titles. Raises `ModelError` if neither its id nor its files tell its family."""
    try:
        checkpoint = Checkpoint.find(model, None)
    except ModelError:
        by_name = families().get(family) if family else family_known(model)
        if by_name is None and model in families():
            raise ModelError(f"{model} is a family and no model: `assay models` lists the models of each family") from None
        if by_name is None:
            raise
        return _facts(model, by_name)
    read_as = family_of(model, checkpoint, family)
    head = {"outputs_of_the_head": read_as.labels(checkpoint)} if read_as.task.pools else {}
    return _facts(model, read_as) | {
        "architecture": checkpoint.architecture,
        **head,
        "longest_prompt": checkpoint.max_model_len,
        "precision": checkpoint.dtype,
    }


def _facts(model: str, family: Family) -> dict[str, Any]:
    card = family.knows(model)
    weights = family.card_weights()
    facts = {
        "model": model,
        "family": family.name,
        "what_it_is": family.summary,
        "prompt_form": family.prompt_form,
        "read": family.read_at,
        "range": family.range,
        "order_of_responses": "matters" if family.order_matters else "doesn't matter",
        "trained_on": f"up to {card.context:,} tokens" if card and card.context else "its card says",
        "licence": card.licence if card else "its card says",
        "limits": card.limits if card and card.limits else "its card says",
        "source": "; ".join(filter(None, (family.source, card.card if card else ""))),
    }
    if isinstance(family, Judge):
        # As on its card: settings may ask for other votes and another sampling.
        each_way = ", once in each order" if family.votes == 2 and family.together else ""
        drawn = family.card
        sampling = f"at temperature {drawn.temperature:g}, top-p {drawn.top_p:g}" if drawn.temperature else "without drawing"
        tokens = f"up to {drawn.max_tokens:,} tokens or half of its context"
        if family.pairs is Pairs.ALL:
            facts["comparisons"] = "of n responses all n(n - 1)/2 pairs (judge.pairs=all)"
        facts["judgements"] = f"{family.votes}{each_way}, {sampling}, {tokens}"
    reward = " + ".join(f"{weight:g} {name}" for name, weight in weights.items()).replace("+ -", "- ")
    return {**facts, "reward": reward}


def known_models() -> Iterator[str]:
    """The known reward models, the families for others, and the judges by name, as lines of text."""
    # Lines and no table: ids are never cut, however narrow the terminal is.
    width = max(len(model.id) for family in families().values() for model in family.models)
    name_width = max(map(len, families()))
    for family in families().values():
        for model in family.models:
            yield f"{model.id:<{width}}  {family.name:<{name_width}}  {model.note}".rstrip()
    yield ""
    yield "Any other checkpoint of these kinds works too; where its config.json doesn't tell, --family does:"
    for family in families().values():
        yield f"  {family.name:<{name_width}}  {family.summary}"
    yield ""
    yield "Judges by name (--rubric preset:NAME), each with its authors' prompt and parser:"
    longest = max(map(len, presets()))
    for name, summary in presets().items():
        yield f"  {name:<{longest}}  {summary}"


def explained(facts: Mapping[str, Any]) -> Table:
    """A model's facts as a table."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
    return table
