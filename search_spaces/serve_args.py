"""From a configuration to the arguments of ``vllm serve``.

Owns the spelling of flags: one canonical order, no flag twice, booleans as ``--flag`` or
``--no-flag`` (vLLM refuses ``--flag=true``), mappings as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import Configuration
from search_spaces.precision import PRECISIONS

OFF = "off"
PRECISION = "precision"
SPECULATION = "speculation"
DRAFT_LENGTH = "num_speculative_tokens"
BATCH_SIZE = "batch_size"

# Parameters that are not vLLM flags of the same name.
NOT_FLAGS = frozenset({PRECISION, SPECULATION, DRAFT_LENGTH, BATCH_SIZE})


def to_flags(
    configuration: Configuration,
    *,
    fixed: Mapping[str, Any],
    methods: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """The vLLM arguments of a configuration, by underscore name.

    Args:
        configuration: Active parameters.
        fixed: Arguments that every launch of the study has.
        methods: Speculative configurations by the name that ``speculation`` takes.

    Returns:
        Values by argument name.

    Raises:
        ValueError: One argument is set twice, or a precision or method is unknown.
    """
    parts: list[tuple[str, Mapping[str, Any]]] = [("serve", fixed)]
    if PRECISION in configuration:
        name = str(configuration[PRECISION])
        if name not in PRECISIONS:
            raise ValueError(f"precision {name!r} is unknown: choose from {', '.join(PRECISIONS)}")
        parts.append((f"precision {name}", PRECISIONS[name].serve_args))
    speculation = str(configuration.get(SPECULATION, OFF))
    if speculation != OFF:
        if speculation not in methods:
            raise ValueError(f"speculation {speculation!r} has no method of that name")
        draft = dict(methods[speculation]) | {DRAFT_LENGTH: configuration[DRAFT_LENGTH]}
        parts.append(("speculation", {"speculative_config": draft}))
    parts.append(("parameters", {k: v for k, v in configuration.items() if k not in NOT_FLAGS}))
    flags: dict[str, Any] = {}
    owner: dict[str, str] = {}
    for source, arguments in parts:
        for name, value in arguments.items():
            if name in flags:
                raise ValueError(f"{name} is set by {owner[name]} and again by {source}")
            flags[name], owner[name] = value, source
    return flags


def to_arguments(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Flags as command-line words, sorted by name.

    Args:
        flags: Values by underscore name; a ``None`` leaves the flag out.

    Returns:
        Words for ``vllm serve``.
    """
    words: list[str] = []
    for name in sorted(flags):
        value = flags[name]
        dashed = name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, bool):
            words.append(f"--{dashed}" if value else f"--no-{dashed}")
        elif isinstance(value, Mapping):
            words += [f"--{dashed}", json.dumps(value, sort_keys=True, separators=(",", ":"))]
        elif isinstance(value, list | tuple):
            words += [f"--{dashed}", *map(str, value)]
        else:
            words += [f"--{dashed}", str(value)]
    return tuple(words)
