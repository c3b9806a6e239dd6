"""`tune start`: create or resume a study and run it to the end of its budget."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.app import app
from tuner.cli.pareto import print_pareto
from tuner.cli.workspace import StorageOption, StoredStudy, StudyOption, mlruns_dir
from tuner.errors import (
    InterruptedStudyError,
    ServerNeverStartedError,
    StudyFileError,
    UsageError,
)
from tuner.logs import STDERR

if TYPE_CHECKING:
    from tuner.config import Study
    from tuner.serving import Hardware
    from tuner.study.ledger import Ledger
    from tuner.study.loop import Budget, StopReason


class Cancel:
    """Whether the operator wants to stop: set by the first Ctrl-C, the second stops at once."""

    def __init__(self) -> None:
        self.is_set = False

    def __call__(self) -> bool:
        """Asked by whatever may take long."""
        return self.is_set

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGINT, SIGTERM and a closed terminal's SIGHUP while the study runs."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        # What is ignored on purpose, as nohup does with SIGHUP, stays ignored.
        before = {
            number: handler
            for number in numbers
            if (handler := signal.getsignal(number)) is not signal.SIG_IGN
        }
        for number in before:
            signal.signal(number, self._handle)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: object) -> None:
        del number, frame
        if self.is_set:
            raise KeyboardInterrupt
        self.is_set = True
        STDERR.print("Stopping: the server is being ended. Once more stops at once.")


@app.command()
def start(
    study: StudyOption,
    launches: Annotated[
        int | None, typer.Option("--launches", min=1, help="Launches over the study's life.")
    ] = None,
    hours: Annotated[
        float | None, typer.Option("--hours", min=0.0, help="Hours of this run.")
    ] = None,
    storage: StorageOption = None,
    tracking_uri: Annotated[
        str | None,
        typer.Option("--tracking-uri", help="MLflow server; a local store without it."),
    ] = None,
) -> None:
    """Create or resume a study: launch vLLM, measure, log, and print the Pareto set."""
    from tuner.config import check_models_exist, read_study
    from tuner.serving import detect_hardware
    from tuner.study.loop import Budget, StopReason

    read = read_study(study, folder=Path.cwd())
    check_hardware(read, detect_hardware())
    check_models_exist(read)
    budget = Budget(
        n_launches=launches or read.budget.launches,
        hours=hours if hours is not None else read.budget.hours,
    )
    cancel = Cancel()
    with cancel.listening():
        reason, stored = _run(read, budget, storage, tracking_uri, cancel)
    STDERR.print(f"Study {read.name}: {reason.value}.", markup=False)
    if reason is StopReason.INTERRUPTED:
        raise InterruptedStudyError(
            f"interrupted; `tune start --study {study}` goes on where it stopped."
        )
    _raise_if_nothing_served(stored, reason)
    print_pareto(stored)
    typer.echo("\nCompare the trials: `tune ui` serves MLflow on http://127.0.0.1:5000")


def check_hardware(study: Study, hardware: Hardware) -> None:
    """See that the study's GPUs are here, before anything is started.

    Raises:
        UsageError: They are not.
    """
    if study.n_gpus > len(hardware.gpus):
        needed = f"{study.n_gpus} GPU{'s' if study.n_gpus > 1 else ''}"
        is_parallel = "tensor_parallel_size" in study.space.parameters
        raise UsageError(
            f"study {study.name} needs {needed} (hardware.gpus in {study.file}), and this machine "
            f"has {hardware.describe()}: run it on a node with {needed}, or lower hardware.gpus "
            f"{'with the sizes in tensor_parallel_size ' if is_parallel else ''}in a copy of the "
            "file under a name of your own in search_spaces/."
        )


def _run(
    study: Study, budget: Budget, storage: str | None, tracking_uri: str | None, cancel: Cancel
) -> tuple[StopReason, StoredStudy]:
    from tuner.cli.progress import ConsoleProgress
    from tuner.load import check_arrivals, load_tokenizer, open_source
    from tuner.serving import find_vllm, reap_orphans
    from tuner.study.ledger import Ledger
    from tuner.study.loop import World, n_counted, run_study
    from tuner.study.recording import Recording
    from tuner.study.samplers import make_sampler
    from tuner.study.storage import create_or_load, open_storage, storage_url, study_lock
    from tuner.tracking import MlflowTracker
    from tuner.trial_runner import TrialSetup, run_trial

    folder = mlruns_dir()
    url = storage_url(storage, folder)
    vllm = find_vllm()
    source = open_source(study.workload, load_tokenizer(study.model), Path.cwd())
    check_arrivals(source, study.ladder)
    with study_lock(url, study.name, folder):
        for owned in reap_orphans(folder / "owned"):
            STDERR.print(f"Ended {owned.launch_id}, left by a tune that was killed.")
        optuna_storage = open_storage(url)
        optuna_study = create_or_load(
            optuna_storage,
            study.name,
            study.objectives,
            make_sampler("random", seed=0, n_launches=1, n_seen=0),
        )
        ledger = Ledger(optuna_study)
        check_unchanged(study, ledger)
        optuna_study.sampler = make_sampler(
            study.sampler.name,
            seed=study.sampler.seed,
            n_launches=budget.n_launches,
            n_seen=len(optuna_study.get_trials(deepcopy=False)),
        )
        tracker = MlflowTracker.open(
            uri=tracking_uri, mlruns_dir=folder, study=study.name, description=describe(study)
        )
        ledger.set_tracking_uri(tracking_uri)
        setup = TrialSetup(
            study=study,
            vllm=vllm,
            source=source,
            owned_dir=folder / "owned",
            is_cancelled=cancel,
        )
        n_done = n_counted(list(ledger.launches()))
        with ConsoleProgress(STDERR, study, n_done=n_done, n_total=budget.n_launches) as progress:
            recording = Recording(study, ledger, tracker, folder / "logs" / study.name, progress)
            world = World(
                optuna_study=optuna_study,
                recording=recording,
                run_trial=lambda configuration, place, recorder: run_trial(
                    setup, configuration, place, recorder
                ),
                is_cancelled=cancel,
            )
            reason = run_study(world, budget)
    return reason, StoredStudy(study=study, ledger=ledger)


def check_unchanged(study: Study, ledger: Ledger) -> None:
    """See that a stored study was made from the same file; a new one remembers it.

    Raises:
        StudyFileError: What was measured cannot be compared with what would be measured now.
    """
    stored = ledger.canonical
    if stored is None:
        ledger.set_canonical(study.to_canonical())
        return
    changes = study.changes_since(stored)
    if changes:
        raise StudyFileError(
            f"the study was started with another file, and its results cannot be mixed: "
            f"{'; '.join(changes)}. Restore it, or save the changed file under another name.",
            file=study.file,
        )


def describe(study: Study) -> str:
    """A study as Markdown, for MLflow's experiment page."""
    limits = ", ".join(f"{slo.metric} {slo.limit:g}" for slo in study.slos) or "none"
    wanted = ", ".join(f"{o.direction.value} {o.metric}" for o in study.objectives)
    hardware = f"{study.n_gpus} GPUs" if study.n_gpus else "CPU"
    return (
        f"**Model** {study.model}\n\n**Hardware** {hardware}\n\n**SLOs** {limits}\n\n"
        f"**Objectives** {wanted}\n\n**Workload** `{study.workload.model_dump_json()}`"
    )


def _raise_if_nothing_served(stored: StoredStudy, reason: StopReason) -> None:
    launches = [launch for launch in stored.ledger.launches() if launch.was_started]
    if any(launch.points for launch in launches):
        return
    failures = [launch.failure for launch in launches if launch.failure is not None]
    last = failures[-1].message if failures else reason.value
    raise ServerNeverStartedError(
        f"no launch of {stored.study.name} could be measured: {last}. The servers' logs are in "
        f"mlruns/logs/{stored.study.name}/."
    )
