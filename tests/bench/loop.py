"""What the tuner itself costs: seconds per launch and peak memory, without any server.

Usage: python -m tests.bench.loop [N ...]

Runs whole studies (ask, tell, ledger, records, MLflow) whose launches answer at once with six
points of 120 requests each, and prints the tuner's own seconds per launch in the first and last
tenth of the study, by which one sees whether it stays flat.
"""

from __future__ import annotations

import itertools
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

N_REQUESTS = 120
BATCH_SIZES = (1, 2, 4, 8, 16, 32)
STUDY = f"""
version: 1
model: org/model
hardware: {{gpus: 8}}
parameters:
  batch_size: {{ladder: {list(BATCH_SIZES)}}}
  max_num_seqs: {{log2: [32, 512]}}
  gpu_memory_utilization: {{float: [0.7, 0.95]}}
  tensor_parallel_size: {{choices: [2, 4, 8]}}
workload: {{input_tokens: 8, output_tokens: 4}}
objectives: [{{maximize: output_tok_per_s_per_gpu}}, {{minimize: p99_tpot_ms}}]
slo: {{p99_ttft_ms: 2000, p99_tpot_ms: 40}}
"""


def run(n_launches: int) -> None:
    """One study in this process; prints a line."""
    from objectives import Load, OperatingPoint, RequestRecord, Window, evaluate, summarise
    from tuner.config.build import build_study
    from tuner.study.ledger import Ledger
    from tuner.study.loop import Budget, World, run_study
    from tuner.study.recording import Recording
    from tuner.study.samplers import make_sampler
    from tuner.study.storage import create_or_load, open_storage, storage_url
    from tuner.tracking import MlflowTracker
    from tuner.trial import Measured

    study = build_study(STUDY, name="bench", file="bench.yaml")
    marks = [time.perf_counter()]

    def run_trial(configuration, folder, recorder):
        recorder.on_command(("vllm", "serve", *study.arguments(configuration)), {})
        points = []
        for batch_size in BATCH_SIZES:
            tpot_s = (0.005 + 0.0004 * batch_size) * 4 / configuration["tensor_parallel_size"]
            records = [
                RequestRecord(
                    index=index,
                    due_s=index * 0.01,
                    sent_s=index * 0.01,
                    chunk_s=tuple(index * 0.01 + 0.05 + tpot_s * k for k in range(4)),
                    end_s=index * 0.01 + 0.1,
                    n_prompt_tok=8,
                    n_output_tok=4,
                    n_output_tok_asked=4,
                )
                for index in range(N_REQUESTS)
            ]
            summary = summarise(
                records,
                window=Window(start_s=0.0, end_s=2.0),
                n_gpus=configuration["tensor_parallel_size"],
                slos=study.slos,
            )
            point = OperatingPoint(
                load=Load.batch(batch_size),
                metrics=summary.metrics,
                exceedances=summary.exceedances,
            )
            recorder.on_point(point, evaluate(point, study.slos), records)
            points.append(point)
        marks.append(time.perf_counter())
        return Measured(points=tuple(points), start_s=1.0)

    class Silent:
        def stage(self, launch, stage, elapsed_s): ...
        def point(self, launch, point, evaluation): ...
        def closed(self, launch): ...

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sampler = make_sampler("tpe", seed=0, n_launches=n_launches, n_seen=0)
        storage = open_storage(storage_url(None, folder))
        optuna_study = create_or_load(storage, "bench", study.objectives, sampler)
        ledger = Ledger(optuna_study)
        tracker = MlflowTracker.open(
            uri=None, mlruns_dir=folder, study="bench", description="bench"
        )
        marks[0] = time.perf_counter()
        world = World(
            optuna_study=optuna_study,
            recording=Recording(study, ledger, tracker, folder / "logs", Silent()),
            run_trial=run_trial,
            is_cancelled=lambda: False,
        )
        run_study(world, Budget(n_launches=n_launches, hours=None))
    seconds = [b - a for a, b in itertools.pairwise(marks)]
    tenth = max(1, len(seconds) // 10)
    first, last = sum(seconds[:tenth]) / tenth, sum(seconds[-tenth:]) / tenth
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{n_launches:>4} launches x {len(BATCH_SIZES)} points: "
        f"{sum(seconds) / len(seconds):.2f} s per launch, first tenth {first:.2f}, "
        f"last tenth {last:.2f} (ratio {last / first:.1f}), peak memory {peak_mib:.0f} MiB",
        flush=True,
    )


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--one":
        run(int(sys.argv[2]))
    else:
        for n in sys.argv[1:] or ("40", "400"):
            # A process each, so that the peak memory is that study's own.
            subprocess.run([sys.executable, "-m", "tests.bench.loop", "--one", n], check=True)
