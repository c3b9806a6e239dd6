"""Every kind of bad study file: what is wrong, at which key, in which line, and what to do."""

import pytest

from tests.unit.config.studies import GOOD, build, good, refusal
from tuner.errors import ExitStatus, StudyFileError


def test_the_good_study_is_good():
    assert build(GOOD).model == "org/model"


def test_the_error_carries_file_key_line_and_exit_status():
    with pytest.raises(StudyFileError) as caught:
        build(good(max_num_seqs="  max_num_seqs: {log2: [16, 2]}"))
    error = caught.value
    assert (error.file, error.key, error.line) == (
        "search_spaces/mine.yaml",
        "parameters.max_num_seqs.log2",
        7,
    )
    assert error.exit_status is ExitStatus.STUDY_FILE == 3
    assert str(error) == (
        "search_spaces/mine.yaml:7: parameters.max_num_seqs.log2: "
        "log2 range [16, 2] is empty: low is above high"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # Unknown keys, with the nearest known one.
        (
            good(level="levle: {max_requests: 400}"),
            ":14: levle: unknown key: did you mean 'level'",
        ),
        (
            good(level="level: {max_request: 400}"),
            ":14: level.max_request: unknown key: did you mean 'max_requests'?",
        ),
        (
            good(max_num_seqs="  max_num_seqs: {logs2: [2, 16]}"),
            ":7: parameters.max_num_seqs.logs2: unknown key: did you mean 'log2'?",
        ),
        (
            good(workload="workload: {input_token: 32, output_tokens: 12}"),
            ":9: workload.input_token: unknown key: did you mean 'input_tokens'?",
        ),
        (
            good(workload="workload: {input_tokens: {lognormall: [9, 1.0]}}"),
            ":9: workload.input_tokens.lognormall: unknown key: did you mean 'lognormal'?",
        ),
        (
            good(level="xyzzy: 1"),
            ":14: xyzzy: unknown key: known are budget, confidence, env, hardware,",
        ),
        # Workloads that cannot be drawn.
        (
            good(workload="workload: {seed: -1}"),
            ":9: workload.seed: input should be greater than or equal to 0",
        ),
        (
            good(workload="workload: {input_tokens: {lognormal: [.inf, 1.0]}}"),
            ":9: workload.input_tokens.lognormal",
        ),
        (
            good(workload="workload: {input_tokens: {lognormal: [64.0, 900.0]}}"),
            ":9: workload.input_tokens: lognormal needs a median of at least 1 and",
        ),
        # Missing keys.
        (good(model=""), ": model: is missing: add it"),
        (good(hardware="hardware: {}"), ":3: hardware.gpus: is missing: add it"),
        # Wrong types and values.
        (good(version="version: 2"), ":1: version: input should be 1, not 2"),
        (good(version="version: '1'"), ":1: version: input should be 1, not '1'"),
        (good(model="model: 7"), ":2: model: should be text, not 7"),
        (good(model="model: ''"), ":2: model: string should have at least 1 character, not ''"),
        (good(hardware="hardware: 8"), ":3: hardware: should be a mapping, not 8"),
        (
            good(hardware="hardware: {gpus: two}"),
            ":3: hardware.gpus: should be a whole number, not 'two'",
        ),
        (
            good(hardware="hardware: {gpus: true}"),
            ":3: hardware.gpus: should be a whole number, not True",
        ),
        (
            good(hardware="hardware: {gpus: -1}"),
            ":3: hardware.gpus: input should be greater than or equal to 0, not -1",
        ),
        (
            good(max_num_seqs="  max_num_seqs: {log2: [2, 16.5]}"),
            ":7: parameters.max_num_seqs.log2[1]: should be a whole number, not 16.5",
        ),
        (
            good(max_num_seqs="  max_num_seqs: {log2: 16}"),
            ":7: parameters.max_num_seqs.log2: should be a list, not 16",
        ),
        (
            good(max_num_seqs="  gpu_memory_utilization:\n    float: [low, 0.9]"),
            ":8: parameters.gpu_memory_utilization.float[0]: should be a number, not 'low'",
        ),
        (
            good(max_num_seqs="  int: {choices: [[1], 2]}"),
            (
                ":7: parameters.int.choices[0]: should be true or false or a whole number or "
                "a number or text, not a list"
            ),
        ),
        (
            good(workload="workload: {input_tokens: many}"),
            ":9: workload.input_tokens: should be a whole number or a mapping, not 'many'",
        ),
        (
            good(slo="slo: {p99_ttft_ms: fast}"),
            ":13: slo.p99_ttft_ms: should be a number, not 'fast'",
        ),
        (good(slo="slo: [1]"), ":13: slo: should be a mapping, not a list"),
        # Empty and impossible ranges.
        (
            good(max_num_seqs="  max_num_seqs: {range: [9, 3]}"),
            ":7: parameters.max_num_seqs.range: range [9, 3] is empty: low is above high",
        ),
        (
            good(max_num_seqs="  max_num_seqs: {log2: [3, 16]}"),
            ":7: parameters.max_num_seqs.log2: log2 range ends must be powers of two, not 3",
        ),
        (
            good(max_num_seqs="  f: {float: [0.9, 0.5]}"),
            ":7: parameters.f.float: float range [0.9, 0.5] is empty",
        ),
        (
            good(max_num_seqs="  f: {float: [0.9, .inf]}"),
            ":7: parameters.f.float: float range [0.9, inf] must have finite ends",
        ),
        (
            good(max_num_seqs="  max_num_seqs: {choices: []}"),
            ":7: parameters.max_num_seqs.choices: choices are empty: give at least one value",
        ),
        (
            good(max_num_seqs="  max_num_seqs: {choices: [4, 4]}"),
            ":7: parameters.max_num_seqs.choices: choice 4 stands there twice",
        ),
        (
            good(max_num_seqs="  f: {choices: [.inf]}"),
            ":7: parameters.f.choices: a choice must be a finite number",
        ),
        (
            good(max_num_seqs="  max_num_seqs: {range: [0, 10], step: 3}"),
            ":7: parameters.max_num_seqs.range: step 3 does not lead from 0 to 10",
        ),
        (
            good(max_num_seqs="  max_num_seqs: {log2: [2, 16], step: 2}"),
            ":7: parameters.max_num_seqs.step: goes with range alone",
        ),
        (
            good(max_num_seqs="  max_num_seqs: {}"),
            ":7: parameters.max_num_seqs: give exactly one of choices, range, log2, float, ladder",
        ),
        (
            good(max_num_seqs="  max_num_seqs: {range: [1, 2], log2: [1, 2]}"),
            ":7: parameters.max_num_seqs: give exactly one of",
        ),
        (
            good(workload="workload: {input_tokens: {uniform: [9, 3]}}"),
            ":9: workload.input_tokens: uniform [9, 3] is empty: low is above high",
        ),
        (
            good(workload="workload: {input_tokens: {lognormal: [0.5, 1.0]}}"),
            ":9: workload.input_tokens: lognormal needs a median of at least 1",
        ),
        (
            good(workload="workload: {input_tokens: 0}"),
            ":9: workload.input_tokens: input should be greater than or equal to 1, not 0",
        ),
        # Batch sizes.
        (
            good(batch_size="  batch_size: {ladder: []}"),
            ":6: parameters.batch_size.ladder: is empty: give at least one batch_size",
        ),
        (
            good(batch_size="  batch_size: {ladder: [1, 4, 2]}"),
            ":6: parameters.batch_size.ladder: must rise from step to step",
        ),
        (
            good(batch_size="  batch_size: {ladder: [1, 1]}"),
            ":6: parameters.batch_size.ladder: must rise from step to step",
        ),
        (
            good(batch_size="  batch_size: {ladder: [1, 2], log2: [1, 2]}"),
            ":6: parameters.batch_size.log2: does not go with ladder",
        ),
        (
            good(batch_size="  batch_size: {range: [0, 2]}"),
            ":6: parameters.batch_size: batch sizes are whole numbers from 1 up",
        ),
        (
            good(batch_size="  batch_size: {float: [1, 2]}"),
            ":6: parameters.batch_size.float: batch sizes are whole numbers",
        ),
        (
            good(batch_size=""),
            ":5: parameters: give exactly one of batch_size, request_rate",
        ),
        (
            good(max_num_seqs="  max_num_seqs: {ladder: [1, 2]}"),
            ":7: parameters.max_num_seqs.ladder: is for batch_size, request_rate",
        ),
        # Loads and the traffic that they need.
        (
            good(batch_size="  batch_size: {ladder: [1]}\n  request_rate_per_s: {ladder: [1]}"),
            ":5: parameters: give exactly one of batch_size, request_rate",
        ),
        (
            good(batch_size="  batch_size: {ladder: [1, 2.5]}"),
            ":6: parameters.batch_size.ladder: batch sizes are whole numbers from 1 up",
        ),
        (
            good(batch_size="  request_rate_per_s: {choices: [1, 2]}"),
            ":6: parameters.request_rate_per_s: give a ladder",
        ),
        (
            good(batch_size="  trace_speed: {ladder: [1, 2]}"),
            ":6: parameters.trace_speed: replays a trace, but workload.kind is synthetic",
        ),
        (
            good(level="level: {max_concurrency: 4}"),
            ":14: level.max_concurrency: limits the requests in flight where arrivals decide",
        ),
        (
            good(workload="workload: {input_tokens: 9, burstiness: 0.5}"),
            ":9: workload.burstiness: is of the arrivals at a request_rate_per_s: remove it",
        ),
        (
            good(workload="workload: {kind: tracer, file: x.csv}"),
            ":9: workload: unknown kind 'tracer': did you mean 'trace'?",
        ),
        (
            good(workload="workload: {kind: trace, files: x.csv, file: x.csv}"),
            ":9: workload.files: unknown key: did you mean 'file'?",
        ),
        (good(workload="workload: {kind: jsonl}"), ":9: workload.file: is missing: add it"),
        (good(workload="workload: 3"), ":9: workload: should be a mapping, not 3"),
        (
            good(
                workload="workload: {input_tokens: {histogram: {upper: [4, 2], counts: [1, 1]}}}"
            ),
            ":9: workload.input_tokens.histogram: upper must rise from bucket to bucket",
        ),
        # Precision.
        (
            good(precision="  precision: {choices: [bf16, fp9]}"),
            ":8: parameters.precision.choices: unknown precision 'fp9': did you mean 'fp8'?",
        ),
        (
            good(precision="  precision: {log2: [8, 16]}"),
            ":8: parameters.precision.log2: precisions are names: use choices",
        ),
        # Arguments that are set twice or are not the study's to set.
        (good(serve="serve: {port: 80}"), ":4: serve.port: is set by tune itself: remove it"),
        (
            good(max_num_seqs="  host: {choices: [a]}"),
            ":7: parameters.host: is set by tune itself: remove it",
        ),
        (
            good(serve="serve: {max_num_seqs: 8}"),
            ":4: serve.max_num_seqs: is varied by parameters too: remove one of them",
        ),
        (
            good(serve="serve: {dtype: auto}"),
            ":4: serve.dtype: is varied by parameters too: remove one of them",
        ),
        (
            good(max_num_seqs="  dtype: {choices: [auto]}"),
            ":7: parameters.dtype: is set by precision too: remove one",
        ),
        (
            good(serve="serve: {precision: bf16}"),
            ":4: serve.precision: is no vLLM argument: make it a parameter",
        ),
        (
            good(serve="serve: {max-model-len: 512}"),
            ":4: serve.max-model-len: write it with underscores: max_model_len",
        ),
        (
            good(max_num_seqs="  max-num-seqs: {log2: [2, 16]}"),
            ":7: parameters.max-num-seqs: write it with underscores: max_num_seqs",
        ),
        (
            good(serve="serve: {no_enable_prefix_caching: true}"),
            ":4: serve.no_enable_prefix_caching: write enable_prefix_caching with true or false",
        ),
        # Metrics.
        (
            good(slo="slo: {p99_tttf_ms: 100}"),
            ":13: slo.p99_tttf_ms: unknown metric 'p99_tttf_ms': did you mean 'p99_ttft_ms'?",
        ),
        (
            good(slo="slo: {elegance: 100}"),
            ":13: slo.elegance: unknown metric 'elegance': docs/study-file.md lists them",
        ),
        (
            good(slo="slo: {p99_ttft_ms: 0}"),
            ":13: slo.p99_ttft_ms: the limit of 'p99_ttft_ms' must be positive, not 0.0",
        ),
        (good(slo="slo: {p99_ttft_ms: .inf}"), ":13: slo.p99_ttft_ms: the limit of 'p99_ttft_ms'"),
        (
            GOOD.replace("maximize: output_tok_per_s", "maximize: output_tok_per_sec"),
            ":11: objectives[0]: unknown metric 'output_tok_per_sec': did you mean",
        ),
        (
            GOOD.replace("maximize: output_tok_per_s", "maximise: output_tok_per_s"),
            ":11: objectives[0].maximise: unknown key: did you mean 'maximize'?",
        ),
        (
            GOOD.replace("{maximize: output_tok_per_s}", "{}"),
            ":11: objectives[0]: give one of maximize and minimize",
        ),
        (
            GOOD.replace("maximize: output_tok_per_s", "minimize: p99_tpot_ms"),
            ":10: objectives: one metric stands there twice: remove one",
        ),
        (
            GOOD.replace("maximize: output_tok_per_s", "minimize: output_tok_per_s"),
            ":11: objectives[0]: ",
        ),
        # Levels and lengths.
        (
            good(level="level: {min_requests: 200, max_requests: 150}"),
            ":14: level.max_requests: (150) is below min_requests (200)",
        ),
        (
            good(level="level: {min_requests: 10, max_requests: 99}"),
            (
                ":14: level.max_requests: 99 requests cannot show the percentiles of the SLOs: "
                "give at least 100"
            ),
        ),
        (
            good(level="level: {max_s: .inf}"),
            ":14: level.max_s: input should be a finite number",
        ),
        (
            good(workload="workload: {input_tokens: 500, output_tokens: 13}"),
            ":9: workload: asks for up to 513 tokens per request, more than serve.max_model_len",
        ),
        (
            good(workload="workload: {input_tokens: {lognormal: [64, 0.5]}, output_tokens: 12}"),
            ":9: workload.input_tokens: is open-ended, but serve.max_model_len is 512",
        ),
        # Rules and conditions.
        (
            GOOD + "rules: [{at_least: [max_num_seq, precision]}]\n",
            ":15: rules[0]: names 'max_num_seq': did you mean 'max_num_seqs'?",
        ),
        (GOOD + "rules: [{forbid: {}}]\n", ":15: rules[0].forbid: is empty"),
        (GOOD + "rules: [{}]\n", ":15: rules[0]: give one of at_least"),
        (
            good(max_num_seqs="  max_num_seqs: {log2: [2, 16], when: {precision: fp8}}"),
            ":5: parameters: 'max_num_seqs' depends on precision = 'fp8', a value it cannot have",
        ),
        (
            good(max_num_seqs="  max_num_seqs: {log2: [2, 16], when: {precision: []}}"),
            ":5: parameters: 'max_num_seqs' depends on no value of 'precision'",
        ),
        (
            good(max_num_seqs="  max_num_seqs: {log2: [2, 16], when: {batch_size: 1}}"),
            ":5: parameters: 'max_num_seqs' depends on 'batch_size', which is no parameter",
        ),
        (
            good(max_num_seqs="  max_num_seqs: {log2: [2, 16], when: {}}"),
            ":7: parameters.max_num_seqs.when: give one parent",
        ),
        (
            good(
                max_num_seqs="  a: {choices: [1], when: {b: 1}}\n  b: {choices: [1], when: {a: 1}}"
            ),
            ":5: parameters: conditions in a circle: ",
        ),
    ],
)
def test_a_bad_file_is_refused_with_key_line_and_remedy(text, said):
    lines = refusal(text)
    assert len(lines) == 1, lines
    assert lines[0].startswith(said), lines[0]


DRAFT = "  max_num_seqs: {log2: [2, 16]}\n  num_speculative_tokens: "


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        ("{range: [0, 4]}", ":8: parameters.num_speculative_tokens: give a method, e.g."),
        (
            "{choices: [1, 2], method: {method: ngram}}",
            ":8: parameters.num_speculative_tokens: give a range of draft lengths from 0 up",
        ),
        (
            "{range: [-1, 4], method: {method: ngram}}",
            ":8: parameters.num_speculative_tokens: give a range of draft lengths from 0 up",
        ),
        (
            "{range: [0, 0], method: {method: ngram}}",
            ":8: parameters.num_speculative_tokens.range: [0, 0] never speculates",
        ),
        (
            "{range: [0, 4], method: {prompt_lookup_max: 4}}",
            ":8: parameters.num_speculative_tokens.method: give vLLM's method",
        ),
        (
            "{range: [0, 4], method: {method: ngram, num_speculative_tokens: 2}}",
            ":8: parameters.num_speculative_tokens.method: num_speculative_tokens comes from",
        ),
        (
            "{range: [0, 4], method: {method: ngram}, methods: {a: {method: ngram}}}",
            ":8: parameters.num_speculative_tokens: give method or methods, not both",
        ),
        (
            "{range: [0, 4], method: {method: off}}",
            ":8: parameters.num_speculative_tokens.method: a method cannot be called 'off'",
        ),
        (
            "{range: [0, 4], methods: {off: {method: ngram}}}",
            ":8: parameters.num_speculative_tokens.methods: a method cannot be called 'off'",
        ),
        (
            "{range: [0, 4], method: {method: ngram}, when: {precision: bf16}}",
            ":8: parameters.num_speculative_tokens.when: give one parent",
        ),
    ],
)
def test_bad_speculation_is_refused(draft, said):
    lines = refusal(good(max_num_seqs=DRAFT + draft))
    assert len(lines) == 1, lines
    assert lines[0].startswith(said), lines[0]


def test_speculation_and_its_config_follow_from_the_draft_length():
    text = good(
        serve="serve: {speculative_config: {method: ngram}}",
        max_num_seqs=DRAFT + "{range: [0, 4], method: {method: ngram}}\n"
        "  speculation: {choices: [off, ngram]}",
    )
    assert refusal(text) == [
        ":4: serve.speculative_config: is varied by parameters too: remove one of them",
        ":9: parameters.speculation: is set by num_speculative_tokens and its methods: remove it",
    ]


def test_a_method_goes_with_the_draft_length_alone():
    text = good(max_num_seqs="  max_num_seqs: {log2: [2, 16], method: {method: ngram}}")
    assert refusal(text) == [
        ":7: parameters.max_num_seqs.method: goes with num_speculative_tokens alone"
    ]


def test_several_schema_problems_are_told_at_once_in_the_order_of_their_lines():
    text = good(
        hardware="hardware: {gpu: 0}",
        max_num_seqs="  max_num_seqs: {log2: [two, 16]}",
        slo="sloo: {p99_ttft_ms: 100}",
    )
    assert refusal(text) == [
        ":3: hardware.gpus: is missing: add it",
        ":3: hardware.gpu: unknown key: did you mean 'gpus'?",
        ":7: parameters.max_num_seqs.log2[0]: should be a whole number, not 'two'",
        ":13: sloo: unknown key: did you mean 'slo'?",
    ]


def test_several_problems_of_meaning_are_told_at_once_with_the_lines_of_block_keys():
    text = good(
        serve="serve:\n  port: 1\n  max_model_len: 8",
        max_num_seqs="  max_num_seqs:\n    log2:\n    - 2\n    - 12",
        slo="slo:\n  p99_ttft_ms: 5\n  p99_tpto_ms: 7",
    )
    lines = refusal(text)
    assert [line.split(": ")[0] + " " + line.split(": ")[1] for line in lines] == [
        ":5 serve.port",
        ":10 parameters.max_num_seqs.log2",
        ":14 workload",
        ":20 slo.p99_tpto_ms",
    ]
