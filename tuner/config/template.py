"""The study file that `tune init` writes."""

from __future__ import annotations

import json


def study_template(model: str, n_gpus: int, name: str = "NAME") -> str:
    """A commented study file.

    Args:
        model: Model id or path.
        n_gpus: GPUs of the node, 0 for the CPU.
        name: The study's name, for the commands in its first line.

    Returns:
        YAML that ``read_study`` accepts.
    """
    sizes = [2**power for power in range(10) if 2**power <= n_gpus]
    # On a GPU speculation is cheap to try; ngram needs no draft model.
    speculation = (
        "  # Tokens drafted ahead, guessed from the prompt; 0 is none.\n"
        "  num_speculative_tokens:\n    range: [0, 4]\n"
        "    method: {method: ngram, prompt_lookup_max: 4}\n"
        if n_gpus
        else ""
    )
    precisions = "[bf16, fp8, fp8-kv8]" if n_gpus else "[bf16, fp32]"
    metric = "output_tok_per_s_per_gpu" if n_gpus else "output_tok_per_s"
    parallel = (
        f"  # GPUs that share one model.\n  tensor_parallel_size: {{choices: {sizes}}}\n"
        if len(sizes) > 1
        else ""
    )
    return f"""# Run it with: tune start --study {name}   Check it with: tune check {name}
# Every key is explained in docs/study-file.md.
version: 1
model: {json.dumps(model, ensure_ascii=False)}
hardware: {{gpus: {n_gpus}}}

# vLLM arguments that every launch has, by their names with underscores.
serve: {{max_model_len: 4096}}

parameters:
  # Requests in flight; one launch climbs them until an SLO is clearly broken.
  batch_size: {{ladder: [1, 2, 4, 8, 16, 32, 64]}}
  # How many requests the server runs at once; the others wait.
  max_num_seqs: {{log2: [8, 256]}}
{parallel}  # Check the answers' quality before you use less than 16 bits.
  precision: {{choices: {precisions}}}
  # Tokens per step: small ones keep decoding smooth, large ones finish prompts sooner.
  max_num_batched_tokens: {{choices: [2048, 4096, 8192]}}
{speculation}
# The traffic to tune for. Lengths are in tokens: a number, uniform: [low, high], or
# lognormal: [median, sigma] with min and max.
workload:
  kind: synthetic
  input_tokens: {{lognormal: [512, 0.6], min: 16, max: 2048}}
  output_tokens: {{lognormal: [256, 0.5], min: 16, max: 1024}}

objectives:
  - {{maximize: {metric}}}
  - {{minimize: p99_tpot_ms}}

# Limits in ms (P99: one request in a hundred may be slower), and the share that may fail.
slo: {{p99_ttft_ms: 2000, p99_tpot_ms: 40, error_frac: 0.01}}

# A level ends when the limits are decided, at max_requests, or after max_s.
level: {{max_requests: 4000, max_s: 300}}
budget: {{launches: 30, hours: 8}}
"""
