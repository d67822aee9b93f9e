"""Names of models for people: a hub id as it is, a folder by as many of its last parts as tell it from the others."""

from collections.abc import Iterable


def short_names(models: Iterable[str]) -> dict[str, str]:
    """The name of each model. Different models have different names."""
    distinct = dict.fromkeys(models)
    return {model: _short(model, [other for other in distinct if other != model]) for model in distinct}


def short_name(model: str) -> str:
    """The name of a model that stands alone."""
    return _short(model, [])


def _short(model: str, others: list[str]) -> str:
    path = model.rstrip("/")
    if not path.startswith(("/", ".", "~")) and path.count("/") <= 1:  # a hub id (owner/name), or a name
        return model
    parts = path.split("/")
    endings = ("/".join(parts[-count:]) for count in range(1, len(parts)))
    return next((end for end in endings if not any(f"/{other.rstrip('/')}".endswith(f"/{end}") for other in others)), model)
