"""A search space: parameters, and the conditions under which each is active.

Owns the order in which parameters are asked for and what a whole configuration is.
"""

from __future__ import annotations

import graphlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from search_spaces.configuration import Configuration, ParameterValue
from search_spaces.parameters import Parameter, is_same_kind


@dataclass(frozen=True)
class When:
    """A parameter is active only while another has one of these values.

    Attributes:
        parameter: Name of the parent.
        values: Values of the parent that switch the parameter on.
    """

    parameter: str
    values: tuple[ParameterValue, ...]

    def holds(self, configuration: Configuration) -> bool:
        """Whether the parent is active and has one of the values."""
        if self.parameter not in configuration:
            return False
        own = configuration[self.parameter]
        return any(is_same_kind(own, value) for value in self.values)


@dataclass(frozen=True)
class SearchSpace:
    """What may vary between launches.

    Attributes:
        parameters: By name; iteration follows ``order``.
        conditions: For the parameters that are not always active.
        order: Names with parents before children, otherwise as given.
    """

    parameters: Mapping[str, Parameter]
    conditions: Mapping[str, When] = field(default_factory=dict)
    order: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Bring the parameters into an order and refuse conditions that cannot be.

        Raises:
            ValueError: A condition on or of an unknown parameter, on no value or one that the
                parent cannot have, or in a circle.
        """
        for name, when in self.conditions.items():
            if name not in self.parameters:
                raise ValueError(f"a condition names {name!r}, which is no parameter")
            parent = self.parameters.get(when.parameter)
            if parent is None:
                raise ValueError(f"{name!r} depends on {when.parameter!r}, which is no parameter")
            if not when.values:
                raise ValueError(f"{name!r} depends on no value of {when.parameter!r}: give one")
            for value in when.values:
                if not parent.contains(value):
                    raise ValueError(
                        f"{name!r} depends on {when.parameter} = {value!r}, a value it cannot have"
                    )
        sorter = graphlib.TopologicalSorter[str]()
        for name in self.parameters:
            when_ = self.conditions.get(name)
            sorter.add(name, *([when_.parameter] if when_ else []))
        try:
            ordered = tuple(sorter.static_order())
        except graphlib.CycleError as error:
            raise ValueError(f"conditions in a circle: {' -> '.join(error.args[1])}") from error
        object.__setattr__(self, "order", ordered)

    def is_active(self, name: str, configuration: Configuration) -> bool:
        """Whether a parameter is to be asked for, given the values so far."""
        when = self.conditions.get(name)
        return when is None or when.holds(configuration)

    def problems(self, configuration: Configuration) -> list[str]:
        """What is wrong with a configuration; empty if it belongs to the space."""
        found = [
            f"{name!r} is no parameter" for name in configuration if name not in self.parameters
        ]
        for name in self.order:
            if not self.is_active(name, configuration):
                if name in configuration:
                    found.append(f"{name!r} is set although its condition does not hold")
            elif name not in configuration:
                found.append(f"{name!r} is missing")
            elif not self.parameters[name].contains(configuration[name]):
                found.append(f"{name} = {configuration[name]!r} lies outside the space")
        return found

    def nearest(self, wanted: Configuration) -> dict[str, ParameterValue]:
        """The configuration of the space that is nearest to a wanted one, value by value.

        Args:
            wanted: Values by parameter name; what is missing gets the parameter's first value.

        Returns:
            A whole configuration.
        """
        configuration: dict[str, ParameterValue] = {}
        for name in self.order:
            if self.is_active(name, configuration):
                configuration[name] = self.parameters[name].nearest(wanted.get(name))
        return configuration

    def describe(self) -> dict[str, Any]:
        """The space as plain data, for hashing and comparing."""
        described: dict[str, Any] = {}
        for name in sorted(self.parameters):
            parameter = self.parameters[name]
            entry: dict[str, Any] = {"kind": type(parameter).__name__} | {
                item.name: _plain(getattr(parameter, item.name)) for item in fields(parameter)
            }
            if name in self.conditions:
                when = self.conditions[name]
                entry["when"] = {when.parameter: list(when.values)}
            described[name] = entry
        return described


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
