"""Names of models for people: a hub id as it is, a folder by as many of its last parts as tell it from the others."""

from collections.abc import Iterable, Sequence


def short_names(models: Iterable[str]) -> dict[str, str]:
    """The name of each model. Different models have different names."""
    distinct = dict.fromkeys(models)
    return {model: short_name(model, [other.rstrip("/") for other in distinct if other != model]) for model in distinct}


def short_name(model: str, others: Sequence[str] = ()) -> str:
    """The name of a model among others, of whose paths none ends with it."""
    parts = model.rstrip("/").split("/")
    is_path = len(parts) > 2 or parts[0] in ("", ".", "..") or parts[0].startswith("~")  # not owner/name, or a name
    ends = ("/".join(parts[-count:]) for count in range(1, len(parts))) if is_path else ()
    return next((end for end in ends if not any(f"/{other}".endswith(f"/{end}") for other in others)), model)
