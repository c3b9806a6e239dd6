"""Rules between parameters: what cannot work is not launched.

Owns the rules as data and their messages. vLLM's own were read in the source of 0.32, named with
each rule; a later version that lifts one only makes us more careful than needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search_spaces.configuration import Configuration, ParameterValue
from search_spaces.parameters import is_same_kind


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A rule that a configuration breaks.

    Attributes:
        message: What is wrong and what to do, in one line.
        parameters: Names of the arguments involved.
    """

    message: str
    parameters: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AtLeast:
    """One argument must be at least as large as another.

    Attributes:
        larger: Name of the argument that must not be smaller.
        smaller: Name of the other.
        unless: The rule is off where these arguments have these values.
        why: Who asks for it.
    """

    larger: str
    smaller: str
    unless: Mapping[str, ParameterValue]
    why: str

    def violation(self, flags: Mapping[str, Any]) -> Violation | None:
        """Check one configuration; an argument that is not set breaks nothing."""
        large, small = flags.get(self.larger), flags.get(self.smaller)
        if not isinstance(large, int | float) or not isinstance(small, int | float):
            return None
        if large >= small or (self.unless and _matches(flags, self.unless)):
            return None
        return Violation(
            message=(
                f"{self.larger} ({large}) is below {self.smaller} ({small}), {self.why}: "
                "raise the first or lower the second"
            ),
            parameters=(self.larger, self.smaller),
        )


@dataclass(frozen=True, kw_only=True)
class Forbid:
    """A combination of values that must not be launched.

    Attributes:
        values: By parameter name; all of them together are forbidden.
    """

    values: Mapping[str, ParameterValue]

    def violation(self, flags: Mapping[str, Any]) -> Violation | None:
        """Check one configuration."""
        if not _matches(flags, self.values):
            return None
        words = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return Violation(message=f"the study file forbids {words}", parameters=tuple(self.values))


Rule = AtLeast | Forbid

VLLM_RULES: tuple[Rule, ...] = (
    AtLeast(
        larger="max_num_batched_tokens",
        smaller="max_num_seqs",
        unless={},
        why="which vLLM refuses (vllm/config/scheduler.py)",
    ),
    AtLeast(
        larger="max_num_batched_tokens",
        smaller="max_model_len",
        # vLLM's default is chunked prefill; only a configuration that turns it off is refused.
        unless={"enable_chunked_prefill": True},
        why="which vLLM refuses without chunked prefill (vllm/config/scheduler.py)",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the rules must know of the model and the hardware.

    Attributes:
        n_gpus: GPUs of the study, 0 for a CPU.
        n_attention_heads: Of the model; ``None`` if its config is not known here.
    """

    n_gpus: int
    n_attention_heads: int | None


def violations(
    configuration: Configuration,
    flags: Mapping[str, Any],
    *,
    rules: Sequence[Rule],
    machine: Machine,
) -> list[Violation]:
    """Every rule that a configuration breaks.

    Args:
        configuration: Active parameters, for the study's own rules.
        flags: The vLLM arguments that they lead to.
        rules: The study's own, beside vLLM's.
        machine: Model and hardware.

    Returns:
        The violations; empty if it may be launched.
    """
    known = {"enable_chunked_prefill": True} | dict(flags) | dict(configuration)
    found = [rule.violation(known) for rule in (*VLLM_RULES, *rules)]
    return [violation for violation in found if violation] + _parallelism(flags, machine)


def _parallelism(flags: Mapping[str, Any], machine: Machine) -> list[Violation]:
    found = []
    tensor = _size(flags, "tensor_parallel_size")
    needed = n_gpus_of(flags)
    if machine.n_gpus and needed > machine.n_gpus:
        found.append(
            Violation(
                message=f"it needs {needed} GPUs, and the study has {machine.n_gpus}",
                parameters=("tensor_parallel_size",),
            )
        )
    # vllm/config/model.py, verify_with_parallel_config.
    heads = machine.n_attention_heads
    if heads is not None and heads % tensor:
        found.append(
            Violation(
                message=(
                    f"tensor_parallel_size ({tensor}) does not divide the model's "
                    f"{heads} attention heads: choose a divisor"
                ),
                parameters=("tensor_parallel_size",),
            )
        )
    return found


def n_gpus_of(flags: Mapping[str, Any]) -> int:
    """GPUs that a launch takes: tensor times pipeline times data parallel size."""
    sizes = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    total = 1
    for name in sizes:
        total *= _size(flags, name)
    return total


def _size(flags: Mapping[str, Any], name: str) -> int:
    """A parallel size; 1 where it is not set, or is nothing that vLLM would take."""
    value = flags.get(name, 1)
    return value if isinstance(value, int) and value > 1 else 1


def _matches(flags: Mapping[str, Any], wanted: Mapping[str, ParameterValue]) -> bool:
    return all(
        name in flags and is_same_kind(flags[name], value) for name, value in wanted.items()
    )
