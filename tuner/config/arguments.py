"""Names of vLLM arguments in a study file: none that is not the study's to set, none twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.precision import PRECISIONS
from search_spaces.serve_args import DRAFT_LENGTH, NOT_FLAGS, PRECISION
from tuner.config.problems import Problems
from tuner.config.schema import StudySpec

# Arguments that the launcher sets itself, so that it can tell its server from any other.
RESERVED = ("host", "port", "served_model_name", "model", "uds", "api_key")


def check_arguments(spec: StudySpec, problems: Problems) -> Mapping[str, Any]:
    """Note each argument that is misnamed, reserved or set twice.

    Returns:
        The arguments of every launch.
    """
    expanded = _expanded(spec)
    for name in spec.serve:
        path = ("serve", name)
        _check_name(path, problems)
        if name in RESERVED:
            problems.add(path, "is set by tune itself: remove it")
        if name in NOT_FLAGS:
            problems.add(path, "is no vLLM argument: make it a parameter, e.g. with one choice")
        elif name in spec.parameters or name in expanded:
            problems.add(path, "is varied by parameters too: remove one of them")
    for name in spec.parameters:
        _check_name(("parameters", name), problems)
        if name in expanded:
            problems.add(("parameters", name), f"is set by {expanded[name]} too: remove one")
    return spec.serve


def _expanded(spec: StudySpec) -> dict[str, str]:
    """Arguments that a parameter of another name sets, and which does."""
    expanded: dict[str, str] = {}
    entry = spec.parameters.get(PRECISION)
    for value in (entry and entry.choices) or []:
        precision = PRECISIONS.get(str(value))
        expanded |= dict.fromkeys(precision.serve_args if precision else (), PRECISION)
    if DRAFT_LENGTH in spec.parameters:
        expanded["speculative_config"] = DRAFT_LENGTH
    return expanded


def _check_name(path: tuple[str, str], problems: Problems) -> None:
    name = path[1]
    if "-" in name:
        problems.add(path, f"write it with underscores: {name.replace('-', '_')}")
    elif name.startswith("no_"):
        # The same argument under two names would stand twice on the command line.
        problems.add(path, f"write {name.removeprefix('no_')} with true or false")
