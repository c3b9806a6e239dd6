"""From the text of a study file to a ``Study``.

Owns what the keys mean together: every problem is collected and told at once, with its line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from objectives import CATALOGUE, Direction, Load, LoadKind, Objective, Slo, nearest_metric
from search_spaces.parameters import Choices, FloatRange, IntRange, Log2Range, Parameter
from search_spaces.precision import PRECISIONS
from search_spaces.rules import AtLeast, Forbid, Rule
from search_spaces.serve_args import BATCH_SIZE, DRAFT_LENGTH, OFF, PRECISION, SPECULATION
from search_spaces.space import SearchSpace, When
from tuner.config.arguments import RESERVED, check_arguments
from tuner.config.problems import Problems, nearest_of
from tuner.config.schema import KINDS, ParameterSpec, StudySpec
from tuner.config.study import Study, is_local, model_config_path
from tuner.config.workload import SyntheticWorkload, TraceWorkload, longest
from tuner.config.yaml_lines import read_yaml

LOADS = tuple(kind.value for kind in LoadKind)


def build_study(text: str, *, name: str, file: str) -> Study:
    """Read and check a study.

    Args:
        text: The file's text.
        name: The study's name.
        file: The file as the user knows it, for messages.

    Returns:
        The study.

    Raises:
        StudyFileError: Everything that is wrong with it.
    """
    data, lines = read_yaml(text, file)
    problems = Problems(file, lines)
    if not isinstance(data, dict):
        problems.add((), "a study file is a mapping: start with `version: 1`")
    problems.raise_if_any()
    try:
        spec = StudySpec.model_validate(data)
    except ValidationError as error:
        problems.add_schema_errors(error)
        problems.raise_if_any()
        raise
    space = _space(spec, problems)
    study = Study(
        name=name,
        file=file,
        model=spec.model,
        n_gpus=spec.hardware.gpus,
        n_attention_heads=_attention_heads(spec.model),
        serve=check_arguments(spec, problems),
        env=spec.env,
        space=space,
        ladder=_ladder(spec, problems),
        methods=_methods(spec, problems),
        rules=_rules(spec, problems),
        workload=spec.workload,
        objectives=_objectives(spec, problems),
        slos=_slos(spec, problems),
        level=spec.level,
        launch=spec.launch,
        budget=spec.budget,
        sampler=spec.sampler,
        confidence=spec.confidence,
    )
    _check_level(spec, problems)
    _check_lengths(spec, problems)
    _check_traffic(spec, problems)
    problems.raise_if_any()
    return study


def _space(spec: StudySpec, problems: Problems) -> SearchSpace:
    parameters: dict[str, Parameter] = {}
    conditions: dict[str, When] = {}
    for name, entry in spec.parameters.items():
        path = ("parameters", name)
        if name in LOADS and (entry.ladder is not None or name != BATCH_SIZE):
            continue
        parameter = _parameter(name, entry, problems)
        if parameter is None:
            continue
        if name == DRAFT_LENGTH:
            _add_speculation(parameter, entry, parameters, conditions, problems)
        else:
            parameters[name] = parameter
        if entry.when is not None:
            if len(entry.when) != 1 or name == DRAFT_LENGTH:
                problems.add((*path, "when"), "give one parent, e.g. when: {speculation: ngram}")
                continue
            ((parent, values),) = entry.when.items()
            listed = values if isinstance(values, list) else [values]
            conditions[name] = When(parent, tuple(listed))
    try:
        return SearchSpace(parameters, conditions)
    except ValueError as error:
        problems.add(("parameters",), str(error))
        return SearchSpace(parameters)


def _parameter(name: str, entry: ParameterSpec, problems: Problems) -> Parameter | None:
    path = ("parameters", name)
    if name in RESERVED or name == SPECULATION:
        by = "tune itself" if name in RESERVED else f"{DRAFT_LENGTH} and its methods"
        problems.add(path, f"is set by {by}: remove it")
        return None
    given = [kind for kind in KINDS if getattr(entry, kind) is not None]
    if len(given) != 1:
        problems.add(path, f"give exactly one of {', '.join(KINDS)}")
        return None
    if entry.ladder is not None:
        problems.add((*path, "ladder"), f"is for {', '.join(LOADS)} alone: use choices")
        return None
    if entry.step is not None and entry.range is None:
        problems.add((*path, "step"), "goes with range alone")
    try:
        parameter = _build_parameter(entry)
    except ValueError as error:
        problems.add((*path, given[0]), str(error))
        return None
    if name == PRECISION:
        _check_precisions(entry, given[0], problems)
    return parameter


def _check_precisions(entry: ParameterSpec, kind: str, problems: Problems) -> None:
    path = ("parameters", PRECISION, kind)
    if entry.choices is None:
        problems.add(path, "precisions are names: use choices")
    for value in entry.choices or []:
        if value not in PRECISIONS:
            hint = nearest_of(str(value), list(PRECISIONS))
            problems.add(path, f"unknown precision {value!r}: {hint}")


def _build_parameter(entry: ParameterSpec) -> Parameter:
    if entry.choices is not None:
        return Choices(tuple(entry.choices))
    if entry.range is not None:
        return IntRange(entry.range[0], entry.range[1], entry.step or 1)
    if entry.log2 is not None:
        return Log2Range(entry.log2[0], entry.log2[1])
    low, high = entry.float or [0.0, 0.0]
    return FloatRange(low, high)


def _add_speculation(
    parameter: Parameter,
    entry: ParameterSpec,
    parameters: dict[str, Parameter],
    conditions: dict[str, When],
    problems: Problems,
) -> None:
    """Draft length 0 means no speculation, which is a choice of its own: on or off first."""
    path = ("parameters", DRAFT_LENGTH)
    if not isinstance(parameter, IntRange) or parameter.step != 1 or parameter.low < 0:
        problems.add(path, "give a range of draft lengths from 0 up, e.g. range: [0, 8]")
        return
    names = tuple(_method_names(entry))
    if OFF in names:
        return  # Told with the methods.
    if not names:
        problems.add(path, "give a method, e.g. method: {method: ngram, prompt_lookup_max: 4}")
        return
    if parameter.high == 0:
        problems.add((*path, "range"), "[0, 0] never speculates: raise the end or leave it out")
        return
    switch = (OFF, *names) if parameter.low == 0 else names
    parameters[SPECULATION] = Choices(switch)
    parameters[DRAFT_LENGTH] = IntRange(max(1, parameter.low), parameter.high)
    conditions[DRAFT_LENGTH] = When(SPECULATION, names)


def _method_names(entry: ParameterSpec) -> list[str]:
    if entry.methods:
        return list(entry.methods)
    return [str(entry.method.get("method", "draft"))] if entry.method else []


def _methods(spec: StudySpec, problems: Problems) -> Mapping[str, Mapping[str, Any]]:
    for name, entry in spec.parameters.items():
        for key in ("method", "methods"):
            if getattr(entry, key) is not None and name != DRAFT_LENGTH:
                problems.add(("parameters", name, key), f"goes with {DRAFT_LENGTH} alone")
    entry = spec.parameters.get(DRAFT_LENGTH) or ParameterSpec()
    if entry.method is not None and entry.methods is not None:
        problems.add(("parameters", DRAFT_LENGTH), "give method or methods, not both")
    methods = entry.methods or dict.fromkeys(_method_names(entry), entry.method or {})
    for name, method in methods.items():
        path = ("parameters", DRAFT_LENGTH, "methods" if entry.methods else "method")
        if name == OFF:
            problems.add(path, f"a method cannot be called {OFF!r}")
        if "method" not in method:
            problems.add(path, "give vLLM's method, e.g. method: ngram")
        if DRAFT_LENGTH in method:
            problems.add(path, f"{DRAFT_LENGTH} comes from the range: remove it here")
    return methods


def _ladder(spec: StudySpec, problems: Problems) -> tuple[Load, ...]:
    given = [kind for kind in LoadKind if kind in spec.parameters]
    if len(given) != 1:
        problems.add(
            ("parameters",),
            f"give exactly one of {', '.join(LOADS)}, e.g. batch_size: {{ladder: [1, 2, 4, 8]}}",
        )
        return ()
    (kind,) = given
    entry, path = spec.parameters[kind], ("parameters", kind.value)
    if entry.ladder is None:
        if kind is LoadKind.BATCH_SIZE:
            _check_proposed(entry, problems)
        else:
            problems.add(path, "give a ladder, e.g. ladder: [1, 2, 4, 8]")
        return ()
    if not entry.ladder:
        problems.add((*path, "ladder"), f"is empty: give at least one {kind}")
    if list(entry.ladder) != sorted(set(entry.ladder)):
        problems.add((*path, "ladder"), "must rise from step to step")
    if kind is LoadKind.BATCH_SIZE and any(step != int(step) for step in entry.ladder):
        problems.add((*path, "ladder"), "batch sizes are whole numbers from 1 up")
    for key in (*KINDS, "when", "step"):
        if key != "ladder" and getattr(entry, key) is not None:
            problems.add((*path, key), "does not go with ladder: remove one of them")
    return tuple(Load(kind=kind, value=step) for step in entry.ladder)


def _check_proposed(entry: ParameterSpec, problems: Problems) -> None:
    """A batch size that the sampler proposes, one level per launch."""
    path = ("parameters", BATCH_SIZE)
    values = list(entry.choices or []) + list(entry.range or []) + list(entry.log2 or [])
    if any(isinstance(v, bool) or not isinstance(v, int) or v < 1 for v in values):
        problems.add(path, "batch sizes are whole numbers from 1 up")
    if entry.float is not None:
        problems.add((*path, "float"), "batch sizes are whole numbers: use range or choices")


def _objectives(spec: StudySpec, problems: Problems) -> tuple[Objective, ...]:
    objectives = []
    for index, entry in enumerate(spec.objectives):
        path = ("objectives", index)
        if (entry.maximize is None) == (entry.minimize is None):
            problems.add(path, "give one of maximize and minimize")
            continue
        metric = entry.maximize if entry.maximize is not None else entry.minimize or ""
        direction = Direction.MAXIMIZE if entry.maximize is not None else Direction.MINIMIZE
        if _is_known(metric, path, problems):
            try:
                objectives.append(Objective(metric=metric, direction=direction))
            except ValueError as error:
                problems.add(path, str(error))
    if len({objective.metric for objective in objectives}) < len(objectives):
        problems.add(("objectives",), "one metric stands there twice: remove one")
    return tuple(objectives)


def _slos(spec: StudySpec, problems: Problems) -> tuple[Slo, ...]:
    slos = []
    for metric, limit in spec.slo.items():
        path = ("slo", metric)
        if _is_known(metric, path, problems):
            try:
                slos.append(Slo(metric=metric, limit=float(limit)))
            except ValueError as error:
                problems.add(path, str(error))
    return tuple(slos)


def _is_known(metric: str, path: tuple[str | int, ...], problems: Problems) -> bool:
    if metric in CATALOGUE:
        return True
    near = nearest_metric(metric)
    hint = f"did you mean {near!r}?" if near else "docs/study-file.md lists them"
    problems.add(path, f"unknown metric {metric!r}: {hint}")
    return False


def _rules(spec: StudySpec, problems: Problems) -> tuple[Rule, ...]:
    rules: list[Rule] = []
    known = [*spec.parameters, *spec.serve, SPECULATION]
    for index, entry in enumerate(spec.rules):
        path = ("rules", index)
        if (entry.at_least is None) == (entry.forbid is None):
            problems.add(path, "give one of at_least: [larger, smaller] and forbid: {...}")
            continue
        names = entry.at_least or list(entry.forbid or {})
        for name in names:
            if name not in known:
                problems.add(path, f"names {name!r}: {nearest_of(name, known)}")
        if entry.at_least is not None:
            larger, smaller = entry.at_least
            rules.append(
                AtLeast(larger=larger, smaller=smaller, unless={}, why="which the study forbids")
            )
        elif entry.forbid:
            rules.append(Forbid(values=entry.forbid))
        else:
            problems.add((*path, "forbid"), "is empty: it would forbid everything")
    return tuple(rules)


def _check_level(spec: StudySpec, problems: Problems) -> None:
    level = spec.level
    if level.max_requests < level.min_requests:
        problems.add(
            ("level", "max_requests"),
            f"({level.max_requests}) is below min_requests ({level.min_requests})",
        )
    n_needed = max(
        (
            round(1 / slo_share)
            for slo_share in (
                Slo(metric=metric, limit=1.0).max_share_frac
                for metric in spec.slo
                if metric in CATALOGUE and CATALOGUE[metric].quantile_frac is not None
            )
            if slo_share
        ),
        default=1,
    )
    if level.max_requests < n_needed:
        problems.add(
            ("level", "max_requests"),
            f"{level.max_requests} requests cannot show the percentiles of the SLOs: "
            f"give at least {n_needed}",
        )


def _check_lengths(spec: StudySpec, problems: Problems) -> None:
    """A request longer than the context would be refused on every launch."""
    limit, workload = spec.serve.get("max_model_len"), spec.workload
    if not isinstance(workload, SyntheticWorkload):
        return
    parts = [longest(workload.input_tokens), longest(workload.output_tokens)]
    if not isinstance(limit, int) or isinstance(limit, bool):
        return
    per_turn = sum(part for part in parts if part is not None)
    total = workload.turns * per_turn + workload.shared_prefix_tokens
    if total > limit:
        problems.add(
            ("workload",),
            f"asks for up to {total} tokens per request, more than serve.max_model_len ({limit}): "
            "shorten the lengths or raise it",
        )
    for key, part in zip(("input_tokens", "output_tokens"), parts, strict=True):
        if part is None:
            problems.add(
                ("workload", key),
                f"is open-ended, but serve.max_model_len is {limit}: add max: N to it",
            )


def _check_traffic(spec: StudySpec, problems: Problems) -> None:
    is_closed = LoadKind.BATCH_SIZE in spec.parameters
    if LoadKind.TRACE_SPEED in spec.parameters and not isinstance(spec.workload, TraceWorkload):
        problems.add(
            ("parameters", LoadKind.TRACE_SPEED.value),
            f"replays a trace, but workload.kind is {spec.workload.kind}: give a trace",
        )
    if is_closed and spec.level.max_concurrency is not None:
        problems.add(
            ("level", "max_concurrency"),
            "limits the requests in flight where arrivals decide how many there are; batch_size "
            "says how many there are: remove it",
        )
    if LoadKind.REQUEST_RATE not in spec.parameters and spec.workload.burstiness != 1.0:
        problems.add(
            ("workload", "burstiness"), "is of the arrivals at a request_rate_per_s: remove it"
        )


def _attention_heads(model: str) -> int | None:
    if not is_local(model):
        return None
    try:
        config = json.loads(model_config_path(model).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    heads = config.get("num_attention_heads") if isinstance(config, dict) else None
    return heads if isinstance(heads, int) else None
