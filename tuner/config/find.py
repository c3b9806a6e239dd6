"""Finding a study file: in the working folder, by path, or among the presets."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from tuner.config.build import build_study
from tuner.config.problems import nearest_of
from tuner.config.study import Study, is_local, model_config_path
from tuner.errors import StudyFileError, UsageError

FOLDER = "search_spaces"


def read_study(name: str, *, folder: Path) -> Study:
    """Find, read and check a study.

    Args:
        name: ``NAME`` of ``search_spaces/NAME.yaml`` in the folder, a path to a YAML file, or the
            name of a preset, tried in this order.
        folder: The working folder.

    Returns:
        The study, named after its file.

    Raises:
        UsageError: There is no such file.
        StudyFileError: The file is wrong.
    """
    file = folder / FOLDER / f"{name}.yaml"
    if is_name(name) and _is_file(file):
        return _read(file, f"{FOLDER}/{name}.yaml")
    if name.endswith((".yaml", ".yml")) or "/" in name:
        try:
            path = folder / Path(name).expanduser()
        except RuntimeError:
            path = folder / name
        if not _is_file(path):
            raise UsageError(f"there is no study file {name!r}: check the path.")
        return _read(path, name)
    preset = resources.files("search_spaces") / "presets" / f"{name}.yaml"
    if name in preset_names():
        shown = str(preset).removeprefix(f"{folder}/")
        return build_study(preset.read_text(encoding="utf-8"), name=name, file=shown)
    own = sorted(path.stem for path in (folder / FOLDER).glob("*.yaml") if path.is_file())
    known = [*own, *preset_names()]
    hint = nearest_of(name, known)
    stop = "" if hint.endswith("?") else "."
    raise UsageError(
        f"there is no study {name!r}: {hint}{stop} Looked for {FOLDER}/{name}.yaml "
        f"here and among the presets; `tune init` writes a new file."
    )


def is_name(name: str) -> bool:
    """Whether a study can be called so: a file name and nothing more."""
    return re.fullmatch(r"\w[\w.-]*", name) is not None


def preset_names() -> list[str]:
    """Names of the presets that come with the package."""
    folder = resources.files("search_spaces") / "presets"
    return sorted(
        entry.name.removesuffix(".yaml")
        for entry in folder.iterdir()
        if entry.name.endswith(".yaml")
    )


def check_models_exist(study: Study) -> None:
    """See that models named by a path are there; ids of a hub are vLLM's to find.

    Raises:
        StudyFileError: The model or a draft is missing.
    """
    named = {"model": study.model} | {
        f"parameters.num_speculative_tokens ({name})": method["model"]
        for name, method in study.methods.items()
        if isinstance(method.get("model"), str)
    }
    for key, model in named.items():
        if is_local(model) and not _is_file(model_config_path(model)):
            hint = (
                "run `tune demo-model mlruns/demo-model` first"
                if "demo-model" in model
                else "check the path, which is relative to the working folder"
            )
            raise StudyFileError(
                f"there is no model at {model} (no config.json): {hint}.", file=study.file, key=key
            )


def _is_file(path: Path) -> bool:
    """Whether a file is there and can be seen; a name that no file can have is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def _read(file: Path, shown: str) -> Study:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StudyFileError(f"cannot be read: {error}", file=shown) from error
    return build_study(text, name=file.stem, file=shown)
