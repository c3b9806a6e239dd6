"""YAML with the line of every key.

Owns reading text into plain data plus a map from key path to line. Only ``true`` and ``false`` are
truth values, as in YAML 1.2: a study that says ``off`` means the word.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from tuner.errors import StudyFileError

Path = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """SafeLoader without YAML 1.1's ``yes``, ``no``, ``on`` and ``off``."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regex) for tag, regex in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


def read_yaml(text: str, file: str) -> tuple[Any, dict[Path, int]]:
    """Parse one document.

    Args:
        text: The document.
        file: Its name, for messages.

    Returns:
        The data, and the line (from 1) of every mapping key and list item by path.

    Raises:
        StudyFileError: No YAML, more than one document, or a key that stands twice.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        lines: dict[Path, int] = {}
        if node is not None:
            _walk(node, (), lines, file)
        data = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise StudyFileError(
            f"this is not YAML: {error.problem or error.context}",
            file=file,
            line=None if mark is None else mark.line + 1,
        ) from error
    except yaml.YAMLError as error:
        raise StudyFileError(f"this is not YAML: {error}", file=file) from error
    finally:
        loader.dispose()
    return data, lines


def _walk(node: yaml.Node, path: Path, lines: dict[Path, int], file: str) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            if here in lines:
                raise StudyFileError(
                    f"stands there twice (first in line {lines[here]}): remove one",
                    file=file,
                    key=dotted(here),
                    line=key.start_mark.line + 1,
                )
            lines[here] = key.start_mark.line + 1
            _walk(value, here, lines, file)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[*path, index] = item.start_mark.line + 1
            _walk(item, (*path, index), lines, file)


def line_of(path: Path, lines: dict[Path, int]) -> int | None:
    """Line of a path, or of the nearest thing around it that has one."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def dotted(path: Path) -> str:
    """A path as people read it: ``parameters.max_num_seqs`` or ``objectives[0]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text
