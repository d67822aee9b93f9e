"""YAML for settings, and files of a user that hold one: no dates, no duplicate keys, and errors with their line."""

from typing import Any

import yaml
from yaml.reader import ReaderError


class _Plain(yaml.SafeLoader):
    """Without dates: no setting is one, so 2026-01-01 as an engine's argument is text."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # The mapping. Raises `yaml.YAMLError` for a key that is there twice: YAML would drop what the first one says.
        node = super().compose_mapping_node(anchor)
        keys = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := [name for position, (tag, name) in enumerate(keys) if (tag, name) in keys[:position]]:
            raise yaml.YAMLError(f"{twice[0]} is given twice, from line {node.start_mark.line + 1} on")
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except ValueError as error:  # of `!!int x`, for which the library has no error of its own
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from error

    yaml_constructors = yaml.SafeLoader.yaml_constructors | {
        "tag:yaml.org,2002:timestamp": yaml.SafeLoader.construct_yaml_str
    }


def parse_yaml(text: str) -> Any:
    """The value that a text stands for. Raises `ValueError` that says in which line it is no YAML.

    Dates stay texts, and a key that is there twice is an error.
    """
    try:
        return yaml.load(text, _Plain)
    except yaml.MarkedYAMLError as error:
        # Lines and columns count from 0 in the library, and from 1 in editors.
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = " ".join(filter(None, (error.context, error.problem)))
        raise ValueError(f"{place}{problem}") from error
    except ReaderError as error:
        raise ValueError(f"line {text.count(chr(10), 0, error.position) + 1}: {error.reason}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from error


def read_mapping(value: Any, noun: str) -> Any:
    """What the YAML or JSON file named by a text holds; any other value as it is. Raises `ValueError`, which says `noun`."""
    if not isinstance(value, str):
        return value
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
