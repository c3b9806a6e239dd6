"""What `tune start` shows while it runs: a line per operating point, and a bar on a terminal."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from objectives import Evaluation, Load, OperatingPoint
from tuner.config import Study
from tuner.report import describe_configuration, describe_misses, number_text
from tuner.report.rows import PointRow
from tuner.trial import FailureKind, Launch


class ConsoleProgress:
    """Lines on stderr; on a terminal also a bar with what is left in launches and time.

    Args:
        console: Where to.
        study: For limits and names.
        n_done: Launches that count already.
        n_total: The budget.
    """

    def __init__(self, console: Console, study: Study, *, n_done: int, n_total: int) -> None:
        self._console = console
        self._study = study
        self._n_done = n_done
        self._n_total = n_total
        self._shown: int | None = None
        self._durations_s: list[float] = []
        self._started_s = time.perf_counter()
        self._bar = Progress(
            TextColumn("{task.completed:.0f}/{task.total:.0f} launches"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task: TaskID = self._bar.add_task("", total=n_total, completed=n_done, left="")

    def __enter__(self) -> Self:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        self._bar.stop()

    def stage(self, launch: Launch, stage: str, elapsed_s: float) -> None:
        """Name the launch once, then show how far it is."""
        if self._shown != launch.number:
            self._shown = launch.number
            what = describe_configuration(launch.configuration)
            self._line(f"launch {launch.number} ({self._n_done + 1}/{self._n_total}): {what}")
        if self._console.is_terminal:
            self._bar.update(self._task, description=stage)
        elif stage == "serving":
            self._line(f"  serving after {elapsed_s:.0f} s")

    def point(self, launch: Launch, point: OperatingPoint, evaluation: Evaluation) -> None:
        """One line per operating point."""
        metric = point.metrics.get
        row = PointRow(launch=launch, point=point, evaluation=evaluation, run_id=None)
        note = evaluation.verdict.value if point.is_valid else "invalid"
        if not evaluation.is_within:
            note += f": {describe_misses(row, self._study.slos)}"
        self._line(
            f"  {_load_words(point.load)}: "
            f"{number_text(metric('output_tok_per_s'), 1):>8} tok/s, "
            f"TTFT P99 {number_text(metric('p99_ttft_ms'), 1):>7} ms, "
            f"TPOT P99 {number_text(metric('p99_tpot_ms'), 1):>6} ms, "
            f"n {number_text(metric('n_requests'), 0)}, {note}"
        )

    def closed(self, launch: Launch) -> None:
        """Say how a failed launch failed, and count."""
        failure = launch.failure
        if failure is not None:
            self._line(f"  failed ({failure.kind.value}): {failure.message}")
        if failure is None or failure.kind is not FailureKind.INTERRUPTED:
            self._n_done += 1
        if launch.duration_s is not None:
            self._durations_s.append(launch.duration_s)
        left = self._eta()
        self._bar.update(self._task, completed=self._n_done, description="", left=left)
        if not self._console.is_terminal:
            done = f"{self._n_done}/{self._n_total} launches done"
            self._line(f"  {done}, {left}" if left else f"  {done}")

    def _eta(self) -> str:
        n_left = max(0, self._n_total - self._n_done)
        if not self._durations_s or not n_left:
            return ""
        mean_s = sum(self._durations_s) / len(self._durations_s)
        minutes = n_left * mean_s / 60
        return f"about {minutes:.0f} min left" if minutes >= 1 else "less than a minute left"

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False)


def _load_words(load: Load) -> str:
    """A load in words, batch sizes below each other."""
    return str(load) if load.batch_size is None else f"batch {load.batch_size:>3}"
