"""The load generator: requests, the streaming client, and levels with their validity.

Measures any OpenAI-compatible server; knows nothing of how it was started.
"""

from tuner.load.client import Endpoint
from tuner.load.level import LevelHooks, LevelPlan, LevelResult, StopReason, n_needed, run_level
from tuner.load.prompts import PromptFactory, load_tokenizer
from tuner.load.requests import PreparedRequest, Session
from tuner.load.validity import invalid_reasons

__all__ = [
    "Endpoint",
    "LevelHooks",
    "LevelPlan",
    "LevelResult",
    "PreparedRequest",
    "PromptFactory",
    "Session",
    "StopReason",
    "invalid_reasons",
    "load_tokenizer",
    "n_needed",
    "run_level",
]
