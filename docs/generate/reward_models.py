"""The page of the reward models: every family, how it is asked and read, and the models that are known to be of it."""

from collections.abc import Iterator

from actors.contracts.family import Family
from actors.contracts.judge import Judge
from actors.contracts.known_model import KnownModel
from actors.reward_model import families
from docs.generate.markdown import Page, anchored, code, document, heading, table, text


def pages() -> Iterator[Page]:
    """One page of all families, in the order of their names."""
    sorted_families = [families()[name] for name in sorted(families())]
    rows = [
        (f"[{code(family.name)}](#{anchored(family.name)})", _kind(family), text(family.summary))
        for family in sorted_families
    ]
    yield Page(
        "reward-models.md",
        document(
            "# Reward models",
            "A family is one way in which a reward model is asked and read. A model is known by its id, or its files tell "
            "its family; where they don't, `--family` does. `assay models` lists these models, `assay models explain MODEL` "
            "says of one of them, or of a folder, what is said here, and `assay check MODEL` tries it out.",
            table(("family", "kind", "what it is"), rows),
            *map(_section, sorted_families),
        ),
    )


def _kind(family: Family) -> str:
    return "judge that writes" if isinstance(family, Judge) else "reward head" if family.task.pools else "verifier"


def _section(family: Family) -> str:
    facts = [
        ("prompt", text(family.prompt_form)),
        ("read", text(family.read_at)),
        ("a reward is", text(_reward(family))),
        ("range", text(family.range)),
        ("order of responses", "matters" if family.order_matters else "doesn't matter"),
        *([("judgements", text(_judgements(family)))] if isinstance(family, Judge) else []),
        *([("reasoning in a response", code(family.reasoning.value))] if family.reasoning else []),
        *(
            [("settings of its own", ", ".join(code(f"--{_flag(way)}") for way in sorted(family.ways)))]
            if family.ways
            else []
        ),
        ("source", text(family.source)),
    ]
    return document(
        heading(2, code(family.name), anchored(family.name)),
        f"{text(family.summary)}.",
        table(("", ""), facts),
        table(("model", "", "licence", "trained on", "limits", "source"), map(_model, family.models)),
    ).rstrip()


def _flag(setting: str) -> str:
    return setting.replace("_", "-")


def _reward(family: Family) -> str:
    weights = family.card_weights()
    words = " + ".join(f"{weight:g} {name}" for name, weight in weights.items()).replace("+ -", "- ")
    return words or "what its rubric says"


def _judgements(judge: Judge) -> str:
    each_way = ", once in each order" if judge.votes == 2 and judge.together else ""
    drawn = (
        f"at temperature {judge.card.temperature:g}, top-p {judge.card.top_p:g}" if judge.card.temperature else "greedily"
    )
    return f"{judge.votes}{each_way}, {drawn}, up to {judge.card.max_tokens:,} tokens or half of its context"


def _model(model: KnownModel) -> tuple[str, ...]:
    trained = f"{model.context:,} tokens" if model.context else "its card says"
    return code(model.id), text(model.note), text(model.licence), trained, text(model.limits), text(model.card)
