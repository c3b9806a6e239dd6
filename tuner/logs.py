"""Messages for people on stderr: one console, so that they never tear a progress bar.

Owns the console and the logging set-up; results never go through here, they go to stdout.
"""

from __future__ import annotations

import logging

from rich.console import Console
from rich.logging import RichHandler

STDERR = Console(stderr=True, highlight=False, soft_wrap=True)


def configure_logging(*, debug: bool) -> None:
    """Send our own messages to stderr, everything at ``debug``, else warnings."""
    handler = RichHandler(console=STDERR, show_time=debug, show_path=debug, show_level=True)
    logger = logging.getLogger("tuner")
    logger.handlers = [handler]
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    logger.propagate = False
