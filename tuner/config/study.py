"""A study as the rest of the service sees it: read, checked, ready to be run.

Owns what follows from a configuration (arguments, levels, broken rules) and what makes two studies
the same; how a file becomes one is in ``build``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from objectives import Load, Objective, Slo
from search_spaces.configuration import Configuration, ParameterValue
from search_spaces.rules import Machine, Rule, Violation, n_gpus_of, violations
from search_spaces.serve_args import BATCH_SIZE, OFF, to_arguments, to_flags
from search_spaces.space import SearchSpace
from tuner.config.environment import public_env
from tuner.config.schema import BudgetSpec, LaunchSpec, LevelSpec, SamplerSpec
from tuner.config.workload import AnyWorkload, SyntheticWorkload

# What vLLM 0.32 takes when it is not told (vllm/engine/arg_utils.py, get_batch_defaults, for the
# API server): the first trial is the nearest to it that the space holds.
_GPU_DEFAULTS: Mapping[str, ParameterValue] = {
    "max_num_seqs": 1024,
    "max_num_batched_tokens": 8192,
}
_CPU_DEFAULTS: Mapping[str, ParameterValue] = {
    "max_num_seqs": 128,
    "max_num_batched_tokens": 2048,
}
_DEFAULTS: Mapping[str, ParameterValue] = {
    "precision": "bf16",
    "dtype": "auto",
    "kv_cache_dtype": "auto",
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "block_size": 16,
    "gpu_memory_utilization": 0.92,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
    "enforce_eager": False,
    "speculation": OFF,
}


def model_config_path(model: str) -> Path:
    """Where a local model's ``config.json`` would be."""
    try:
        return Path(model).expanduser() / "config.json"
    except RuntimeError:
        # ``~name`` of a user that does not exist is an ordinary name.
        return Path(model) / "config.json"


def is_local(model: str) -> bool:
    """Whether a model is named by a path, not by an id of a hub."""
    return model.startswith(("/", "./", "../", "~"))


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study file, checked.

    Attributes:
        name: The study's name in storage and tracking.
        file: The file as the user knows it.
        model: Model id, or a path if it starts with ``/``, ``./`` or ``../``.
        n_gpus: GPUs it may use, 0 for the CPU.
        n_attention_heads: Of the model; ``None`` where its config is not at hand.
        serve: vLLM arguments of every launch, by underscore name.
        env: Environment variables of every launch.
        space: What the sampler varies.
        ladder: Load levels in ascending order; empty if the sampler proposes the batch size.
        methods: Speculative configurations by name.
        rules: The file's own rules.
        workload: The traffic.
        objectives: What is wanted.
        slos: The limits.
        level: How long a level is measured.
        launch: How a server is started.
        budget: What may be spent.
        sampler: Who proposes.
        confidence: Of verdicts.
    """

    name: str
    file: str
    model: str
    n_gpus: int
    n_attention_heads: int | None
    serve: Mapping[str, Any]
    env: Mapping[str, str]
    space: SearchSpace
    ladder: tuple[Load, ...]
    methods: Mapping[str, Mapping[str, Any]]
    rules: tuple[Rule, ...]
    workload: AnyWorkload
    objectives: tuple[Objective, ...]
    slos: tuple[Slo, ...]
    level: LevelSpec
    launch: LaunchSpec
    budget: BudgetSpec
    sampler: SamplerSpec
    confidence: float

    @property
    def is_model_local(self) -> bool:
        """Whether the model and every draft are named by paths, so that no hub is needed."""
        drafts = [method["model"] for method in self.methods.values() if "model" in method]
        return all(is_local(str(model)) for model in (self.model, *drafts))

    def flags(self, configuration: Configuration) -> dict[str, Any]:
        """The vLLM arguments of a configuration, by underscore name."""
        return to_flags(configuration, fixed=self.serve, methods=self.methods)

    def arguments(self, configuration: Configuration) -> tuple[str, ...]:
        """The vLLM arguments of a configuration, as command-line words."""
        return to_arguments(self.flags(configuration))

    def violations(self, configuration: Configuration) -> list[Violation]:
        """Rules that a configuration breaks; empty if it may be launched."""
        machine = Machine(n_gpus=self.n_gpus, n_attention_heads=self.n_attention_heads)
        return violations(
            configuration, self.flags(configuration), rules=self.rules, machine=machine
        )

    def n_gpus_of(self, configuration: Configuration) -> int:
        """GPUs that a launch of the configuration takes; 0 on the CPU."""
        return n_gpus_of(self.flags(configuration)) if self.n_gpus else 0

    def levels(self, configuration: Configuration) -> tuple[Load, ...]:
        """What to measure on a launch, ascending.

        Requests in flight beyond the server's ``max_num_seqs`` only wait in its queue, so batch
        sizes above it are left out; the lowest one always stays.
        """
        if not self.ladder:
            return (Load.batch(int(configuration[BATCH_SIZE])),)
        cap = self.flags(configuration).get("max_num_seqs")
        # A cap that is no number is vLLM's to refuse, when it starts.
        if not isinstance(cap, int):
            return self.ladder
        fitting = tuple(load for load in self.ladder if (load.batch_size or 0) <= cap)
        return fitting or self.ladder[:1]

    def default_configuration(self) -> dict[str, ParameterValue]:
        """The configuration of the space that is nearest to vLLM's own defaults."""
        by_hardware = _GPU_DEFAULTS if self.n_gpus else _CPU_DEFAULTS
        return self.space.nearest(dict(_DEFAULTS) | dict(by_hardware))

    def to_canonical(self) -> dict[str, Any]:
        """What makes the study comparable with its past runs, as plain data by part.

        Budget, level length and sampler may change from run to run and are not in it.
        """
        return {
            "model": self.model,
            "hardware": {"gpus": self.n_gpus},
            "serve": dict(self.serve),
            "env": public_env(self.env),
            "parameters": self.space.describe() | {"ladder": self._ladder_words()},
            "methods": {name: dict(method) for name, method in self.methods.items()},
            "workload": self.workload.model_dump(mode="json") | _file_digest(self.workload),
            "objectives": {o.metric: o.direction.value for o in self.objectives},
            "slo": {slo.metric: slo.limit for slo in self.slos},
            "confidence": self.confidence,
        }

    def _ladder_words(self) -> str:
        kind = f"{self.ladder[0].kind} " if self.ladder else ""
        return kind + ", ".join(f"{load.number:g}" for load in self.ladder)

    def changes_since(self, stored: Mapping[str, Any]) -> list[str]:
        """Parts in which the study differs from a stored canonical form, in words."""
        return _differences(self.to_canonical(), stored)


def _file_digest(workload: AnyWorkload) -> dict[str, str]:
    """What the workload's file holds, since other contents are another workload."""
    if isinstance(workload, SyntheticWorkload):
        return {}
    try:
        with Path(workload.file).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        # Who sends the workload says that it cannot be read.
        digest = "unreadable"
    return {"file_sha256": digest}


def _differences(now: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    found = []
    for part in sorted(now.keys() | stored.keys()):
        new, old = now.get(part), stored.get(part)
        if new == old:
            continue
        if not isinstance(new, Mapping) or not isinstance(old, Mapping):
            found.append(f"{part} was {old!r} and is now {new!r}")
            continue
        for key in sorted(new.keys() | old.keys()):
            if key not in old:
                found.append(f"{part}.{key} is new")
            elif key not in new:
                found.append(f"{part}.{key} is gone")
            elif new[key] != old[key]:
                found.append(f"{part}.{key} was {_short(old[key])} and is now {_short(new[key])}")
    return found


def _short(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return str(value)
