"""What is known of a reward model, for people: by its id, and by its files where they are here."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from actors.checkpoint.checkpoint_files import Checkpoint
from actors.contracts.family import Family, KnownModel
from actors.contracts.judge import Judge
from actors.errors import ModelError
from actors.reward_model import families, family_known, family_of


def explanation(model: str, family: str | None = None) -> dict[str, Any]:
    """What to know before using a model. Raises `ModelError` if neither its id nor its files tell how it is read."""
    try:
        checkpoint = Checkpoint.find(model, None)
    except ModelError:
        by_name = families().get(family) if family else family_known(model)
        if by_name is None:
            raise
        return _told_of(model, by_name)
    found = family_of(model, checkpoint, family)
    head = {"outputs_of_the_head": found.labels(checkpoint)} if found.task.pools else {}
    return _told_of(model, found) | {
        "architecture": checkpoint.architecture,
        **head,
        "longest_prompt": checkpoint.max_model_len,
        "precision": checkpoint.dtype,
    }


def _told_of(model: str, family: Family) -> dict[str, Any]:
    weights = family.card_weights()
    return {
        "model": model,
        "family": family.name,
        **_told(model, family, family.knows(model)),
        **(_asking(family) if isinstance(family, Judge) else {}),
        "reward": " + ".join(f"{weight:g} {name}" for name, weight in weights.items()).replace("+ -", "- "),
    }


def _asking(judge: Judge) -> dict[str, Any]:
    """How often a judge is asked, and how it draws, unless it is told otherwise."""
    each_way = ", once in each order" if judge.votes == 2 and judge.together else ""
    card = judge.card
    drawn = f"at temperature {card.temperature:g}, top-p {card.top_p:g}" if card.temperature else "without drawing"
    return {"judgements": f"{judge.votes}{each_way}, {drawn}, up to {card.max_tokens:,} tokens or half of its context"}


def _told(model: str, kind: Family, known: KnownModel | None) -> dict[str, Any]:
    return {
        "model": model,
        "what it is": kind.summary,
        "asked with": kind.asked,
        "read": kind.read_at,
        "range": kind.range,
        "order of responses": "matters" if kind.order_matters else "doesn't matter",
        "trained on": f"up to {known.context:,} tokens" if known and known.context else "its card says",
        "licence": known.licence if known else "its card says",
        "source": "; ".join(filter(None, (kind.source, known.card if known else ""))),
    }


def show_models() -> None:
    """Print the reward models that are known."""
    console = Console(highlight=False)
    width = max(len(model.id) for family in families().values() for model in family.models)
    name_width = max(map(len, families()))
    for family in families().values():
        for model in family.models:
            console.print(f"{model.id:<{width}}  {family.name:<{name_width}}  {model.note}".rstrip(), soft_wrap=True)
    console.print("\nAny other checkpoint of these kinds works too; where its config.json doesn't tell, --family does:")
    for family in families().values():
        console.print(f"  {family.name:<{name_width}}  {family.summary}", soft_wrap=True)


def show_explained(found: Mapping[str, Any]) -> None:
    """Print what is known of a model."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, value in found.items():
        table.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
    Console(highlight=False).print(table)
