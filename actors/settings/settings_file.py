"""Files of a user that hold one setting: a rubric, a grader, a JSON schema."""

from typing import Any


def read_mapping(value: Any, noun: str) -> Any:
    """What the YAML or JSON file named by a text holds; any other value as it is. Raises `ValueError`, which says `noun`."""
    if not isinstance(value, str):
        return value
    from actors.settings.plain_yaml import parse_yaml  # only who gives a file needs it

    name = value.encode("utf-8", "backslashreplace").decode()  # pydantic takes no message that isn't UTF-8
    try:
        with open(value, encoding="utf-8") as file:
            content = parse_yaml(file.read())
    except OSError as error:
        raise ValueError(f"the {noun} {name} can't be read: {error.strerror}") from error
    except UnicodeError as error:
        raise ValueError(f"the {noun} {name} can't be read: it isn't UTF-8 text") from error
    except ValueError as error:
        raise ValueError(f"the {noun} {name} can't be read: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"the {noun} {name} isn't a mapping of settings")
    return content
