"""Which of a study's environment settings may be stored and shown."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|KEY|SECRET|PASSWORD|CREDENTIALS?)(?:_|$)", re.IGNORECASE
)


def public_env(env: Mapping[str, str]) -> dict[str, str]:
    """Settings without those whose name says that they are secret.

    Args:
        env: Values by name.

    Returns:
        The others; servers are given all, but databases, logs and screens only these.
    """
    return {name: value for name, value in env.items() if not _SECRET_NAME.search(name)}
