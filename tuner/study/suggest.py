"""From a search space to Optuna parameters and back.

Owns the encoding: a ``Log2Range`` is proposed as its exponent, so that 8 to 16 is as far as 256 to
512; everything else is proposed as it is. Conditional parameters are asked for only while their
condition holds, parents first.
"""

from __future__ import annotations

from typing import assert_never

from optuna.trial import Trial

from search_spaces.configuration import Configuration, ParameterValue
from search_spaces.parameters import Choices, FloatRange, IntRange, Log2Range, Parameter
from search_spaces.space import SearchSpace


def suggest_configuration(trial: Trial, space: SearchSpace) -> dict[str, ParameterValue]:
    """Ask the sampler for one configuration.

    Args:
        trial: An asked trial.
        space: What may vary.

    Returns:
        Values of the active parameters by name.
    """
    configuration: dict[str, ParameterValue] = {}
    for name in space.order:
        if not space.is_active(name, configuration):
            continue
        configuration[name] = _suggest(trial, name, space.parameters[name])
    return configuration


def to_params(configuration: Configuration, space: SearchSpace) -> dict[str, ParameterValue]:
    """A configuration as the sampler parameters that propose it, for enqueueing."""
    return {
        param_name(name, space.parameters[name]): encode(space.parameters[name], value)
        for name, value in configuration.items()
    }


def param_name(name: str, parameter: Parameter) -> str:
    """The parameter's name in the study storage."""
    return f"log2_{name}" if isinstance(parameter, Log2Range) else name


def encode(parameter: Parameter, value: ParameterValue) -> ParameterValue:
    """A parameter's value as the sampler sees it."""
    return int(value).bit_length() - 1 if isinstance(parameter, Log2Range) else value


def _suggest(trial: Trial, name: str, parameter: Parameter) -> ParameterValue:
    label = param_name(name, parameter)
    match parameter:
        case Choices(values=values):
            chosen = trial.suggest_categorical(label, values)
            assert chosen is not None  # noqa: S101 - Optuna's type allows it, ours does not
            return chosen
        case IntRange(low=low, high=high, step=step):
            return trial.suggest_int(label, low, high, step=step)
        case Log2Range(low=low, high=high):
            return 1 << trial.suggest_int(label, low.bit_length() - 1, high.bit_length() - 1)
        case FloatRange(low=low, high=high):
            return trial.suggest_float(label, low, high)
        case _:
            assert_never(parameter)
