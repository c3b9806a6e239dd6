"""One trial: a configuration becomes a server, the server is measured, the server is gone.

Owns the order of the steps and when the climb over the batch sizes ends. What a trial teaches and
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
    OperatingPoint,
    RequestRecord,
    ShareWatch,
    Verdict,
    evaluate,
    summarise,
)
from search_spaces.configuration import Configuration
from search_spaces.serve_args import to_arguments
from tuner.config import Study
from tuner.load import (
    Endpoint,
    LevelHooks,
    LevelPlan,
    LevelResult,
    PromptFactory,
    StopReason,
    invalid_reasons,
    n_needed,
    run_level,
)
from tuner.serving import ServerSpec, VllmInstall, VllmServer
from tuner.trial import Failed, FailureKind, Measured, Outcome, Phase

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
        prompts: Builds the requests.
        owned_dir: Where ownership records are kept.
        is_cancelled: Whether the operator wants to stop.
    """

    study: Study
    vllm: VllmInstall
    prompts: PromptFactory
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
        env={**setup.vllm.extra_env(), **offline, **study.env},
        log_file=folder / "server.log",
        owned_dir=setup.owned_dir,
        ready_deadline_s=study.launch.ready_deadline_s,
    )


def _measure(
    setup: TrialSetup, configuration: Configuration, server: VllmServer, observer: TrialObserver
) -> Outcome:
    """Climb the batch sizes until an SLO is clearly broken or the top is reached."""
    study = setup.study
    points: list[OperatingPoint] = []
    for batch_size in study.levels(configuration):
        observer.on_stage(f"batch {batch_size}", 0.0)
        result = _run_level(setup, server, batch_size)
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
        point = _to_point(study, configuration, batch_size, result, is_serving=is_serving)
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


def _run_level(setup: TrialSetup, server: VllmServer, batch_size: int) -> LevelResult:
    study = setup.study
    plan = LevelPlan(
        max_concurrency=batch_size,
        n_warmup=batch_size
        if study.level.warmup_requests is None
        else study.level.warmup_requests,
        min_requests=study.level.min_requests,
        max_requests=study.level.max_requests,
        max_s=study.level.max_s,
        stall_s=study.level.stall_s,
    )
    name = server.spec.launch_id
    requests = setup.prompts.build(n_needed(plan), level=batch_size, model=name)
    watch = ShareWatch(
        study.slos,
        confidence=study.confidence,
        min_feasible=plan.min_requests,
        min_infeasible=MIN_INFEASIBLE + 2 * batch_size,
    )
    hooks = LevelHooks(
        should_stop=watch.add, is_cancelled=setup.is_cancelled, is_alive=server.is_alive
    )
    return run_level(Endpoint(base_url=server.base_url, model=name), requests, plan, hooks)


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
    study: Study,
    configuration: Configuration,
    batch_size: int,
    result: LevelResult,
    *,
    is_serving: bool,
) -> OperatingPoint:
    summary = summarise(
        result.records,
        window=result.window,
        n_gpus=study.n_gpus_of(configuration),
        slos=study.slos,
        confidence=study.confidence,
    )
    return OperatingPoint(
        batch_size=batch_size,
        metrics={**summary.metrics, **result.client.metrics()},
        exceedances=summary.exceedances,
        bounds=summary.bounds,
        invalid_reasons=invalid_reasons(result, expected_model_is_serving=is_serving),
    )
