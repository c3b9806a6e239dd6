"""Problems of a study file, collected so that a person sees all of them at once.

Owns the wording of schema errors; each problem names the key, its line and what to do.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tuner.config.schema import ParameterSpec, StudySpec
from tuner.config.workload import WORKLOADS
from tuner.config.yaml_lines import Path, dotted, line_of
from tuner.errors import StudyFileError

_TYPES = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}

_BRANCHES = {"int", "float", "str", "bool", "Lengths", "constrained-int"}


@dataclass
class Problems:
    """The problems found so far in one file.

    Attributes:
        file: As the user named it.
        lines: Line of every key path.
    """

    file: str
    lines: dict[Path, int]
    found: list[tuple[Path, str]] = field(default_factory=list)

    def add(self, path: Path, message: str) -> None:
        """Note one problem."""
        self.found.append((path, message))

    def add_schema_errors(self, error: ValidationError) -> None:
        """Note what pydantic found, in our words."""
        by_path: dict[Path, list[ErrorDetails]] = {}
        for item in error.errors():
            by_path.setdefault(self._own_path(item["loc"]), []).append(item)
        for path, items in by_path.items():
            # A union reports every branch: one that got further inside says more.
            if not any(path == other[: len(path)] != other for other in by_path):
                self.add(path, _words(items, path))

    def _own_path(self, location: tuple[int | str, ...]) -> Path:
        """Pydantic's location without the names of union branches, which are in no file."""
        path: Path = ()
        for part in location:
            here = (*path, part)
            if here in self.lines or isinstance(part, int) or not _is_branch(part):
                path = here
        return path

    def raise_if_any(self) -> None:
        """Raise all problems as one error.

        Raises:
            StudyFileError: There is at least one.
        """
        if not self.found:
            return
        ordered = sorted(self.found, key=lambda item: line_of(item[0], self.lines) or 0)
        path, message = ordered[0]
        first = StudyFileError(
            message, file=self.file, key=dotted(path), line=line_of(path, self.lines)
        )
        others = [
            str(
                StudyFileError(
                    text, file=self.file, key=dotted(key), line=line_of(key, self.lines)
                )
            )
            for key, text in ordered[1:]
        ]
        first.args = ("\n".join([str(first), *others]),)
        raise first


def nearest_of(name: str, known: list[str]) -> str:
    """A hint at the nearest known name, or the list of them."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"


def _is_branch(part: str) -> bool:
    return part in WORKLOADS or part in _BRANCHES or "[" in part


def _words(items: list[ErrorDetails], path: Path) -> str:
    # Of a union, the branch whose type fits says more than those whose type does not.
    item = next((each for each in items if each["type"] not in _TYPES), items[0])
    kind, given = item["type"], item.get("input")
    if kind == "extra_forbidden":
        return f"unknown key: {nearest_of(str(path[-1]), _fields_at(item['loc'][:-1]))}"
    if kind == "union_tag_invalid":
        name = str(given.get("kind")) if isinstance(given, dict) else str(given)
        return f"unknown kind {name!r}: {nearest_of(name, [*WORKLOADS])}"
    if kind == "union_tag_not_found":
        return f"should be a mapping, not {_shown(given)}"
    if kind == "missing":
        return "is missing: add it"
    if kind in _TYPES:
        wanted = dict.fromkeys(_TYPES[each["type"]] for each in items)
        return f"should be {' or '.join(wanted)}, not {_shown(given)}"
    message = item["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    return f"{message}, not {_shown(given)}" if not isinstance(given, dict | list) else message


def _shown(given: object) -> str:
    if isinstance(given, dict):
        return "a mapping"
    return "a list" if isinstance(given, list) else repr(given)


def _fields_at(location: Path) -> list[str]:
    """Names that a mapping at this place may have; the place as pydantic gives it."""
    model: type[BaseModel] = StudySpec
    for part in location:
        if isinstance(part, int):
            continue
        if _is_branch(part) and part not in model.model_fields:
            model = WORKLOADS.get(part, model)
            continue
        info = model.model_fields.get(part)
        if info is None:
            # Below ``parameters`` the next name is the user's own.
            model = ParameterSpec
            continue
        inner = _model_in(info.annotation)
        if inner is not None:
            model = inner
    return list(model.model_fields)


def _model_in(annotation: object) -> type[BaseModel] | None:
    """The pydantic model that an annotation holds, through unions and containers."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
