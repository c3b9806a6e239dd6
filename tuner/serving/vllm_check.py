"""A study's values against the installed vLLM's own argument parser.

Owns one question to one child process: vLLM is never imported here, and needs no GPU to parse.
"""

from __future__ import annotations

import difflib
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_spaces.configuration import ParameterValue
from search_spaces.parameters import Choices, Parameter
from search_spaces.serve_args import BATCH_SIZE, to_arguments
from tuner.config import Study
from tuner.errors import MissingDependencyError

_TIMEOUT_S = 180
# vLLM moved its parser in 0.3x; the first that imports is asked.
_CHILD = """
import contextlib, importlib, io, json, sys
cases = json.load(sys.stdin)
out, sys.stdout = sys.stdout, sys.stderr
from vllm.utils.argparse_utils import FlexibleArgumentParser
for name in ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args"):
    try:
        make_arg_parser = importlib.import_module(name).make_arg_parser
        break
    except ImportError:
        continue
parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
answers = []
for words in cases:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parser.parse_args(words)
        answers.append(None)
    except SystemExit:
        answers.append(said.getvalue().strip().splitlines()[-1])
    except Exception as error:
        answers.append(f"{type(error).__name__}: {error}")
options = [o for action in parser._actions for o in action.option_strings if o.startswith("--")]
json.dump({"answers": answers, "options": options}, out)
"""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that vLLM refuses.

    Attributes:
        key: Where in the study file, dotted.
        message: What vLLM says, and what may be meant.
    """

    key: str
    message: str


def check_study(study: Study, python: Path) -> list[Problem]:
    """Ask vLLM's parser about every fixed argument and every value of every parameter.

    Args:
        study: The study.
        python: The interpreter that has vLLM.

    Returns:
        What it refuses; empty if nothing.

    Raises:
        MissingDependencyError: vLLM cannot be imported there.
    """
    cases = list(_cases(study))
    answer = _ask(python, [words for _, words in cases])
    options: list[str] = answer["options"]
    problems = []
    for (key, words), refusal in zip(cases, answer["answers"], strict=True):
        unknown = [w for w in words if w.startswith("--") and w not in options]
        if unknown:
            near = difflib.get_close_matches(unknown[0], options, n=1)
            hint = (
                f"did you mean {near[0].removeprefix('--').replace('-', '_')!r}?" if near else ""
            )
            message = f"this vLLM has no argument {unknown[0]}. {hint}".strip()
            problems.append(Problem(key=key, message=message))
        elif refusal is not None:
            message = refusal.removeprefix("vllm serve: error: ")
            problems.append(Problem(key=key, message=message))
    return list(dict.fromkeys(problems))


def _cases(study: Study) -> Iterator[tuple[str, list[str]]]:
    for name, value in study.serve.items():
        yield f"serve.{name}", list(to_arguments({name: value}))
    base = study.default_configuration()
    for name, parameter in study.space.parameters.items():
        if name == BATCH_SIZE:
            continue
        for value in _probes(parameter):
            when = study.space.conditions.get(name)
            parent = {} if when is None else {when.parameter: when.values[0]}
            wanted = study.space.nearest({**base, **parent, name: value})
            flags = study.flags(wanted)
            fixed = set(study.serve)
            words = to_arguments({k: v for k, v in flags.items() if k not in fixed})
            yield f"parameters.{name}", list(words)


def _probes(parameter: Parameter) -> list[ParameterValue]:
    """Every choice; of a range, both ends."""
    if isinstance(parameter, Choices):
        return list(parameter.values)
    return [parameter.low, parameter.high]


def _ask(python: Path, cases: list[list[str]]) -> dict[str, Any]:
    child = subprocess.run(
        [str(python), "-c", _CHILD],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
        env={**os.environ, "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
    )
    if child.returncode:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        raise MissingDependencyError(f"vLLM's argument parser cannot be asked: {last}")
    answer: dict[str, Any] = json.loads(child.stdout)
    return answer


def _own_name(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")
