"""YAML with the line of every key.

Owns reading text into plain data plus a map from key path to line. As in YAML 1.2, only ``true``
and ``false`` are truth values (a study that says ``off`` means the word), ``1e-3`` is a number,
and dates and ``1:30`` are words. So is ``.nan``: no study needs a number that is not itself.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from tuner.errors import StudyFileError

Path = tuple[str | int, ...]


# Far above any study; a few aliases can otherwise stand for billions of values.
_MAX_VALUES = 20_000
_TAG = "tag:yaml.org,2002:"
_PLAIN = frozenset(
    _TAG + kind for kind in ("null", "bool", "int", "float", "str", "seq", "map", "merge")
)


class _Loader(yaml.SafeLoader):
    """SafeLoader without YAML 1.1's ``yes`` and ``off``, dates and numbers to the base 60."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, regex)
        for tag, regex in resolvers
        if tag.removeprefix(_TAG) not in {"bool", "int", "float", "timestamp"}
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    f"{_TAG}bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Loader.add_implicit_resolver(
    f"{_TAG}int", re.compile(r"^(?:[-+]?[0-9]+|0x[0-9a-fA-F]+)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF))$"
    ),
    list("-+.0123456789"),
)


def _int(loader: _Loader, node: yaml.ScalarNode) -> int:
    """Base 10 whatever zeros lead it: in YAML 1.1 ``010`` is eight."""
    text = loader.construct_scalar(node)
    try:
        return int(text, 16 if text.startswith("0x") else 10)
    except ValueError as error:
        message = f"{text[:20]!r} is no whole number, or far too large"
        raise yaml.constructor.ConstructorError(None, None, message, node.start_mark) from error


_Loader.add_constructor(f"{_TAG}int", _int)


def read_yaml(text: str, file: str) -> tuple[Any, dict[Path, int]]:
    """Parse one document.

    Args:
        text: The document.
        file: Its name, for messages.

    Returns:
        The data, and the line (from 1) of every mapping key and list item by path.

    Raises:
        StudyFileError: No YAML, more than one document, a key that stands twice, or a value that
            is no plain data.
    """
    lines: dict[Path, int] = {}
    try:
        loader = _Loader(text)
    except yaml.YAMLError as error:
        raise StudyFileError(f"this is not YAML: {error}", file=file) from error
    try:
        node = loader.get_single_node()
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
    except RecursionError as error:
        raise StudyFileError("is nested too deeply", file=file) from error
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        # What PyYAML lets through from Python for a value that its tag does not fit.
        raise StudyFileError(f"a value cannot be read: {error}", file=file) from error
    finally:
        loader.dispose()
    return data, lines


def _walk(node: yaml.Node, path: Path, lines: dict[Path, int], file: str) -> None:
    line = node.start_mark.line + 1
    if node.tag not in _PLAIN:
        message = f"the tag {node.tag.replace(_TAG, '!!')} is not for study files: remove it"
        raise StudyFileError(message, file=file, key=dotted(path), line=line)
    if len(lines) > _MAX_VALUES:
        raise StudyFileError(f"holds more than {_MAX_VALUES} values", file=file, line=line)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.tag not in {f"{_TAG}str", f"{_TAG}merge"}:
                raise StudyFileError(
                    f"the key {str(key.value)!r} is no word: put it in quotes",
                    file=file,
                    key=dotted(path),
                    line=key.start_mark.line + 1,
                )
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
