"""A configuration: values for the active parameters of a search space.

Owns the value type and its canonical form; knows nothing of samplers or servers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

ParameterValue = bool | int | float | str
Configuration = Mapping[str, ParameterValue]


def configuration_key(configuration: Configuration) -> str:
    """Canonical text of a configuration: equal configurations, and only those, share it.

    Keys are sorted; ``True`` and ``1`` stay apart, as JSON keeps them.
    """
    return json.dumps(dict(configuration), sort_keys=True, separators=(",", ":"))
