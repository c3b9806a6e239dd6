"""A study's values against the installed vLLM's own argument parser.

Owns one question to one child process: vLLM is never imported here, and needs no GPU to parse.
"""

from __future__ import annotations

import difflib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from search_spaces.configuration import ParameterValue
from search_spaces.parameters import Choices, Parameter
from search_spaces.serve_args import BATCH_SIZE, DRAFT_LENGTH, SPECULATION, to_arguments
from tuner.config import Study
from tuner.errors import MissingDependencyError

_TIMEOUT_S = 180
# vLLM moved its parser in 0.3x; the first that imports is asked.
_CHILD = """
import contextlib, importlib, io, json, sys
cases = json.load(sys.stdin)
out, sys.stdout = sys.stdout, sys.stderr
try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser
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
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            parser.parse_args(words)
        answers.append(None)
    except SystemExit:
        answers.append(said.getvalue())
    except Exception as error:
        answers.append(f"vllm serve: error: {type(error).__name__}: {error}")
options = [o for action in parser._actions for o in action.option_strings if o.startswith("--")]
# What vLLM printed may stand before it, so the answer has a line of its own.
print("\\n" + json.dumps({"answers": answers, "options": options}), file=out)
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
        # The parser also takes the beginning of a name; a study must name its arguments in full.
        option = words[0].partition(".")[0]
        if option not in options:
            problems.append(Problem(key=key, message=_unknown(option, options)))
        elif refusal is not None:
            problems.append(Problem(key=key, message=_reason(refusal)))
    return list(dict.fromkeys(problems))


def _cases(study: Study) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The words of one argument at a time, so that each refusal has one key."""
    for name, value in study.serve.items():
        yield from _one_by_one(f"serve.{name}", {name: value})
    for name, parameter in study.space.parameters.items():
        if name in {BATCH_SIZE, SPECULATION}:
            continue
        for value in _probes(parameter):
            for configuration in _configurations(study, name, value):
                flags = study.flags(configuration)
                varied = {flag: flags[flag] for flag in flags if flag not in study.serve}
                yield from _one_by_one(f"parameters.{name}", varied)


def _configurations(
    study: Study, name: str, value: ParameterValue
) -> Iterator[dict[str, ParameterValue]]:
    """The smallest configurations with a value; a draft length goes with every method."""
    if name != DRAFT_LENGTH:
        yield {name: value}
        return
    for method in study.methods:
        yield {SPECULATION: method, name: value}


def _one_by_one(key: str, flags: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, value in flags.items():
        words = to_arguments({name: value})
        if words:
            yield key, words


def _probes(parameter: Parameter) -> list[ParameterValue]:
    """Every choice; of a range, both ends."""
    if isinstance(parameter, Choices):
        return list(parameter.values)
    return [parameter.low, parameter.high]


def _ask(python: Path, cases: Sequence[Sequence[str]]) -> dict[str, Any]:
    try:
        child = subprocess.run(
            [str(python), "-c", _CHILD],
            input=json.dumps(cases),
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            env={**os.environ, "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingDependencyError(f"vLLM's argument parser cannot be asked: {error}") from error
    if child.returncode:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        raise MissingDependencyError(f"vLLM's argument parser cannot be asked: {last}")
    answer: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return answer


def _unknown(option: str, options: list[str]) -> str:
    message = f"this vLLM has no argument {option}"
    near = difflib.get_close_matches(option, options, n=1)
    return f"{message}: did you mean {_own_name(near[0])!r}?" if near else message


def _own_name(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _reason(said: str) -> str:
    """The parser's own words: its usage stands before them, pydantic's web address after."""
    _, found, reason = said.partition("vllm serve: error: ")
    lines = [line.strip() for line in reason.splitlines()]
    kept = [line for line in lines if line and not line.startswith("For further information")]
    if not found or not kept:
        return "vLLM prints a text and ends instead of serving: remove it"
    return " ".join(kept)
