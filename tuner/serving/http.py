"""Small blocking requests to a server on this machine, for readiness and identity.

Never for measuring: that is ``tuner.load``.
"""

from __future__ import annotations

import http.client
import json
from typing import Any


def ask(
    port: int, path: str, *, body: dict[str, Any] | None = None, timeout_s: float
) -> tuple[int, Any] | None:
    """One request to ``127.0.0.1:port``.

    Args:
        port: The server's port.
        path: From the slash on.
        body: Sent as JSON by POST; ``None`` for a GET.
        timeout_s: For each step of the exchange.

    Returns:
        Status and decoded JSON (``None`` where the answer is none); ``None`` without an answer.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    try:
        return response.status, json.loads(text)
    except ValueError:
        return response.status, None


def served_model(port: int, *, timeout_s: float = 1.0) -> str | None:
    """The first model that an OpenAI-compatible server names; ``None`` if it names none."""
    answer = ask(port, "/v1/models", timeout_s=timeout_s)
    match answer:
        case (200, {"data": [{"id": str(name)}, *_]}):
            return name
        case _:
            return None


def generates_a_token(port: int, model: str, *, timeout_s: float) -> bool:
    """Whether the server answers a real request with at least one token."""
    body = {"model": model, "prompt": "a", "max_tokens": 1, "temperature": 0}
    answer = ask(port, "/v1/completions", body=body, timeout_s=timeout_s)
    match answer:
        case (200, {"usage": {"completion_tokens": int(n_tok)}}):
            return n_tok >= 1
        case _:
            return False
