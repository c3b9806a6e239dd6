"""How far a starting server has come, read from its log as it grows."""

from __future__ import annotations

from pathlib import Path

# Texts of vLLM 0.32's log in the order in which they come; each is in tests/unit/serving/logs.
STAGES = (
    ("Initializing a V1 LLM engine", "starting the engine"),
    ("Starting to load model", "loading weights"),
    ("Loading weights took", "weights loaded"),
    ("Dynamo bytecode transform", "compiling"),
    # "GPU KV cache size" or "CPU KV cache size".
    ("KV cache size", "KV cache allocated"),
    ("Capturing CUDA graph", "capturing graphs"),
    ("Application startup complete", "serving"),
)
FIRST_STAGE, LAST_STAGE = "importing vLLM", STAGES[-1][1]


class StageReader:
    """Follows a log file.

    Args:
        log_file: The server's log; may not be there yet.
    """

    def __init__(self, log_file: Path) -> None:
        self._file = log_file
        self._offset = 0
        self._rest = b""
        self.stage = FIRST_STAGE

    def update(self) -> bool:
        """Read what is new.

        Returns:
            Whether the stage has changed.
        """
        try:
            with self._file.open("rb") as log:
                log.seek(self._offset)
                new = log.read()
        except OSError:
            return False
        self._offset += len(new)
        text = (self._rest + new).decode("utf-8", errors="replace")
        # A text that is cut up by the reads is found with the last of them.
        self._rest = (self._rest + new)[-200:]
        before = self.stage
        for mark, stage in STAGES:
            if mark in text:
                self.stage = stage
        return self.stage != before
