"""One trial: a configuration becomes a server, the server is measured, the server is gone.

Owns the order of the steps and when the climb over the loads ends. What a trial teaches and
where it is recorded is the study's business.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from objectives import (
    Evaluation,
    Load,
    OperatingPoint,
    RequestRecord,
    ShareWatch,
    Verdict,
    evaluate,
    evidence_of,
    limited_by,
    summarise,
)
from search_spaces.configuration import Configuration
from search_spaces.serve_args import to_arguments
from tuner.config import Study
from tuner.load import (
    Endpoint,
    LevelHooks,
    LevelResult,
    SessionSource,
    StopReason,
    client_limits,
    invalid_reasons,
    plan_traffic,
    run_level,
)
from tuner.serving import (
    GpuWatch,
    ScrapeWatch,
    ServerSpec,
    VllmInstall,
    VllmServer,
    reset_prefix_cache,
    visible_gpus,
)
from tuner.trial import MEASURING_ENV, Failed, FailureKind, Measured, Outcome, Phase

# How long a server under full load may take for one token before it counts as hung.
_ANSWER_TIMEOUT_S = 30.0
# Requests before a level may be called broken, beside two rounds of its batch: one slow moment of
# the machine must not condemn it.
MIN_INFEASIBLE = 20


class TrialObserver(Protocol):
    """Told what happens, as it happens."""

    def on_command(self, command: tuple[str, ...], env: Mapping[str, str]) -> None:
        """The server is about to be started with this command and these settings."""

    def on_stage(self, stage: str, elapsed_s: float) -> None:
        """The starting server has come this far, or a level has begun."""

    def on_point(
        self, point: OperatingPoint, evaluation: Evaluation, records: Sequence[RequestRecord]
    ) -> None:
        """An operating point is finished."""


@dataclass(frozen=True, kw_only=True)
class TrialSetup:
    """What every trial of a study shares.

    Attributes:
        study: The study.
        vllm: Which vLLM to start.
        source: Builds the requests.
        owned_dir: Where ownership records are kept.
        is_cancelled: Whether the operator wants to stop.
    """

    study: Study
    vllm: VllmInstall
    source: SessionSource
    owned_dir: Path
    is_cancelled: Callable[[], bool]


def run_trial(
    setup: TrialSetup, configuration: Configuration, folder: Path, observer: TrialObserver
) -> Outcome:
    """Launch a configuration, measure its levels, tear it down.

    Args:
        setup: What trials share.
        configuration: Active parameters.
        folder: Gets the server's log; must exist.
        observer: Told what happens.

    Returns:
        What came of it; a failure carries the points finished before it.
    """
    spec = server_spec(setup, configuration, folder)
    observer.on_command(spec.full_command, spec.env)
    server = VllmServer(spec, setup.is_cancelled)
    with server:
        failed = server.start(observer.on_stage)
        outcome = failed or _measure(setup, configuration, server, observer)
    if server.teardown_problem is not None:
        return Failed(
            kind=FailureKind.TEARDOWN,
            phase=Phase.TEARDOWN,
            message=f"{server.teardown_problem}: free it by hand before the next launch",
            points=outcome.points,
        )
    return outcome


def server_spec(setup: TrialSetup, configuration: Configuration, folder: Path) -> ServerSpec:
    """What is started for a configuration."""
    study = setup.study
    flags = {**setup.vllm.extra_flags(), **study.flags(configuration)}
    offline = {"HF_HUB_OFFLINE": "1"} if study.is_model_local else {}
    return ServerSpec(
        # Not a number that counts up: two tuners must never give one name twice.
        launch_id=f"tune-{secrets.token_hex(4)}",
        command=tuple(study.launch.command or setup.vllm.command),
        model=study.model,
        arguments=to_arguments(flags),
        env={**setup.vllm.extra_env(), **MEASURING_ENV, **offline, **study.env},
        log_file=folder / "server.log",
        owned_dir=setup.owned_dir,
        ready_deadline_s=study.launch.ready_deadline_s,
    )


def _measure(
    setup: TrialSetup, configuration: Configuration, server: VllmServer, observer: TrialObserver
) -> Outcome:
    """Climb the loads until an SLO is clearly broken or the top is reached."""
    study = setup.study
    points: list[OperatingPoint] = []
    for load in study.levels(configuration):
        observer.on_stage(str(load), 0.0)
        level = _run_level(setup, configuration, server, load)
        result = level.result
        if result.stopped_because is StopReason.CANCELLED:
            return Failed(
                kind=FailureKind.INTERRUPTED,
                phase=Phase.MEASURE,
                message="stopped by the operator",
                points=tuple(points),
            )
        is_serving = server.answers(timeout_s=_ANSWER_TIMEOUT_S)
        failed = _trouble(result, server, is_serving=is_serving)
        if failed is not None:
            return replace(failed, points=tuple(points))
        point = _to_point(study, configuration, level, is_serving=is_serving)
        evaluation = evaluate(point, study.slos, confidence=study.confidence)
        observer.on_point(point, evaluation, result.records)
        points.append(point)
        if _is_over_the_top(point, study):
            break
    return Measured(points=tuple(points), start_s=server.start_s or 0.0)


def _is_over_the_top(point: OperatingPoint, study: Study) -> bool:
    """Whether more load only breaks further what is broken; a lower limit may yet be reached."""
    upper = [slo for slo in study.slos if slo.is_upper]
    return evaluate(point, upper, confidence=study.confidence).verdict is Verdict.INFEASIBLE


@dataclass(frozen=True, kw_only=True)
class _Level:
    """A level as the client, the server and the driver saw it."""

    load: Load
    result: LevelResult
    evidence: Mapping[str, float | None]


def _run_level(
    setup: TrialSetup, configuration: Configuration, server: VllmServer, load: Load
) -> _Level:
    study = setup.study
    name = server.spec.launch_id
    traffic = plan_traffic(setup.source, load, study.level, model=name)
    watch = ShareWatch(
        study.slos,
        confidence=study.confidence,
        min_feasible=study.level.min_requests,
        min_infeasible=MIN_INFEASIBLE + 2 * (load.batch_size or 0),
    )
    hooks = LevelHooks(
        should_stop=watch.add, is_cancelled=setup.is_cancelled, is_alive=server.is_alive
    )
    endpoint = Endpoint(base_url=server.base_url, model=name)
    # Prompts are fresh on every level; what they share on purpose shall be cached by this one.
    reset_prefix_cache(server.base_url)
    gpus = visible_gpus(study.env, study.n_gpus_of(configuration))
    with ScrapeWatch(server.base_url) as scrapes, GpuWatch(gpus) as driver:
        result = run_level(endpoint, traffic.sessions, traffic.plan, hooks)
    start_s, end_s = (
        result.origin_s + moment_s for moment_s in (result.window.start_s, result.window.end_s)
    )
    evidence = evidence_of(scrapes.scrapes(), start_s, end_s) | driver.metrics(start_s, end_s)
    return _Level(load=load, result=result, evidence=evidence)


def _trouble(result: LevelResult, server: VllmServer, *, is_serving: bool) -> Failed | None:
    """What makes a level, and with it the launch, a failure."""
    if not is_serving:
        return server.diagnose()
    errors = [record.error for record in result.records if record.error]
    if result.stopped_because is StopReason.SERVER_GONE and errors:
        return Failed(
            kind=FailureKind.WRONG_OUTPUT,
            phase=Phase.MEASURE,
            message=f"the server runs but every request failed: {errors[-1]}",
            evidence=errors[-1],
            is_deterministic=True,
        )
    return None


def _to_point(
    study: Study, configuration: Configuration, level: _Level, *, is_serving: bool
) -> OperatingPoint:
    result, evidence = level.result, level.evidence
    summary = summarise(
        result.records,
        window=result.window,
        n_gpus=study.n_gpus_of(configuration),
        slos=study.slos,
        confidence=study.confidence,
    )
    is_fresh = study.workload.has_fresh_prompts
    return OperatingPoint(
        load=level.load,
        metrics={**summary.metrics, **evidence, **result.client.metrics()},
        exceedances=summary.exceedances,
        bounds=summary.bounds,
        invalid_reasons=invalid_reasons(
            result,
            expected_model_is_serving=is_serving,
            stale_hit_frac=evidence["prefix_cache_hit_frac"] if is_fresh else None,
        ),
        limited_by=limited_by(
            evidence,
            max_concurrency=level.load.batch_size,
            client_is_limited=bool(client_limits(result.client)),
            max_num_seqs=_seats(study, configuration),
        ),
    )


def _seats(study: Study, configuration: Configuration) -> float | None:
    """Requests that all engines of a launch run at once; ``None`` where that is vLLM's default."""
    flags = study.flags(configuration)
    per_engine, n_engines = flags.get("max_num_seqs"), flags.get("data_parallel_size", 1)
    if isinstance(per_engine, int) and isinstance(n_engines, int):
        return per_engine * n_engines
    return None
