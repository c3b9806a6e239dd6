"""`tune workload`: what a study sends, and a workload like a running server's traffic."""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.app import app
from tuner.cli.workspace import StudyOption
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.load import Session
    from tuner.load.from_metrics import Histogram

workload_app = typer.Typer(help="Look at a study's workload, or make one.", no_args_is_help=True)
app.add_typer(workload_app, name="workload")

_MAX_BYTES_SHOWN = 400
_TIMEOUT_S = 10.0


@workload_app.command()
def show(
    study: StudyOption,
    *,
    level: Annotated[
        int | None, typer.Option("--level", help="Which step of the ladder, from 1; the first.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what one level of a study sends: how many requests, their lengths, and one of them."""
    from objectives import Load
    from tuner.config import read_study
    from tuner.load import load_tokenizer, open_source, plan_traffic

    spec = read_study(study, folder=Path.cwd())
    ladder = spec.ladder or (Load.batch(1),)
    step = 1 if level is None else level
    if not 1 <= step <= len(ladder):
        raise UsageError(f"--level {step}: the ladder has steps 1 to {len(ladder)}.")
    source = open_source(spec.workload, load_tokenizer(spec.model), Path.cwd())
    traffic = plan_traffic(source, ladder[step - 1], spec.level, model=spec.model)
    summary = {"study": spec.name, "load": str(ladder[step - 1]), **_summary(traffic.sessions)}
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
        return
    typer.echo(
        f"{summary['study']}, {summary['load']}: {summary['n_requests']} requests prepared in "
        f"{summary['n_sessions']} sessions, sha256 {summary['sha256'][:12]}"
    )
    for name in ("n_prompt_tok", "n_output_tok"):
        figures = ", ".join(f"{label} {value}" for label, value in summary[name].items())
        typer.echo(f"{name}: {figures}")
    typer.echo(f"the first: {summary['first']}")


def _summary(sessions: Sequence[Session]) -> dict[str, Any]:
    requests = [request for session in sessions for request in session.turns]
    digest = hashlib.sha256()
    for request in requests:
        digest.update(request.body)
    first = requests[0].body.decode()
    return {
        "n_sessions": len(sessions),
        "n_requests": len(requests),
        "sha256": digest.hexdigest(),
        "n_prompt_tok": _spread([request.n_prompt_tok for request in requests]),
        "n_output_tok": _spread([request.n_output_tok for request in requests]),
        "first": first if len(first) <= _MAX_BYTES_SHOWN else f"{first[:_MAX_BYTES_SHOWN]}...",
    }


def _spread(counts: list[int]) -> dict[str, int]:
    """Of all that is prepared, so that quantiles are exact and need no minimum."""
    ordered = sorted(counts)
    at = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {label: ordered[round(share * (len(ordered) - 1))] for label, share in at.items()}


@workload_app.command("from-metrics")
def from_metrics(
    where: Annotated[str, typer.Argument(help="URL of a server's /metrics, or a saved file.")],
) -> None:
    """Print a workload with the lengths that a running vLLM server has seen."""
    from tuner.load.from_metrics import lengths_from_metrics

    text = _fetch(where) if where.startswith(("http://", "https://")) else _read(Path(where))
    measured = lengths_from_metrics(text, file=where)
    typer.echo(
        f"# {measured.n_requests} requests of {where}: "
        f"mean {measured.mean_prompt_tok:.0f} tokens in, {measured.mean_output_tok:.0f} out.\n"
        "workload:\n"
        "  kind: synthetic\n"
        f"  input_tokens: {_histogram(measured.prompt)}\n"
        f"  output_tokens: {_histogram(measured.output)}"
    )
    for name, histogram in (("input", measured.prompt), ("output", measured.output)):
        if histogram.n_beyond:
            typer.echo(
                f"# {histogram.n_beyond} {name} lengths were above {histogram.upper[-1]}, the "
                "end of the last bucket, and are drawn as within it."
            )


def _histogram(histogram: Histogram) -> str:
    """In YAML's flow form, without the empty buckets at the end."""
    n_used = max(index for index, count in enumerate(histogram.counts) if count) + 1
    upper, counts = list(histogram.upper[:n_used]), list(histogram.counts[:n_used])
    return f"{{histogram: {{upper: {upper}, counts: {counts}}}}}"


def _fetch(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - http(s), checked
            text: str = answer.read().decode("utf-8", errors="replace")
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise UsageError(f"{url} cannot be read ({error}): give the URL of /metrics.") from error
    return text


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): check its name.") from error
