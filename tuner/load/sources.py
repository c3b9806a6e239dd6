"""Where a level's sessions come from.

Owns the protocol of a workload's source and the choice of one by kind.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer

from tuner.config.workload import (
    AnyWorkload,
    ConversationsWorkload,
    SyntheticWorkload,
    TraceWorkload,
)
from tuner.load.conversations import read_jsonl, read_sharegpt
from tuner.load.prompts import PromptWriter
from tuner.load.recorded import ConversationSource, TraceSource
from tuner.load.requests import Session
from tuner.load.synthetic import SyntheticSource
from tuner.load.traces import read_trace


class SessionSource(Protocol):
    """A workload that can be sent."""

    @property
    def workload(self) -> AnyWorkload:
        """What it was made from."""

    def build(self, n_requests: int, *, level: int, model: str) -> list[Session]:
        """Sessions of one level.

        Args:
            n_requests: Requests that they must have, all turns counted; it may be more.
            level: Selects the random stream, so that no level sends another's prompts.
            model: The served model's name.

        Returns:
            In the order in which they begin; the same for the same arguments.
        """


def open_source(workload: AnyWorkload, tokenizer: Tokenizer, folder: Path) -> SessionSource:
    """The source of a workload.

    Args:
        workload: From the study file.
        tokenizer: The model's.
        folder: What the workload's file is relative to.

    Raises:
        UsageError: The file cannot be read, or the tokenizer cannot build prompts.
    """
    writer = PromptWriter(tokenizer, api=workload.api)
    match workload:
        case SyntheticWorkload():
            return SyntheticSource(workload, writer)
        case TraceWorkload():
            return TraceSource(workload, read_trace(folder / workload.file), writer)
        case ConversationsWorkload():
            read = read_sharegpt if workload.kind == "sharegpt" else read_jsonl
            return ConversationSource(workload, read(folder / workload.file), writer)
