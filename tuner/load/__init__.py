"""The load generator: requests, the streaming client, and levels with their validity.

Measures any OpenAI-compatible server; knows nothing of how it was started.
"""

from tuner.load.client import Endpoint
from tuner.load.level import LevelHooks, LevelPlan, LevelResult, StopReason, run_level
from tuner.load.prompts import load_tokenizer
from tuner.load.requests import PreparedRequest, Session
from tuner.load.sources import SessionSource, open_source
from tuner.load.traffic import check_arrivals, plan_traffic
from tuner.load.validity import client_limits, invalid_reasons

__all__ = [
    "Endpoint",
    "LevelHooks",
    "LevelPlan",
    "LevelResult",
    "PreparedRequest",
    "Session",
    "SessionSource",
    "StopReason",
    "check_arrivals",
    "client_limits",
    "invalid_reasons",
    "load_tokenizer",
    "open_source",
    "plan_traffic",
    "run_level",
]
