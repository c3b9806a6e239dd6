"""Precision names and the vLLM arguments that each stands for.

Owns the one table; whether the hardware can do it is for vLLM to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from search_spaces.configuration import ParameterValue


@dataclass(frozen=True, kw_only=True)
class Precision:
    """One way to hold weights and KV cache.

    Attributes:
        serve_args: vLLM arguments by underscore name.
        weight_bits: Bits per weight.
        note: What a person should know before choosing it.
    """

    serve_args: Mapping[str, ParameterValue] = field(default_factory=dict)
    weight_bits: int
    note: str


PRECISIONS: Mapping[str, Precision] = {
    "bf16": Precision(serve_args={"dtype": "bfloat16"}, weight_bits=16, note="most checkpoints"),
    "fp16": Precision(serve_args={"dtype": "float16"}, weight_bits=16, note="GPUs before Ampere"),
    "fp32": Precision(serve_args={"dtype": "float32"}, weight_bits=32, note="CPUs without bf16"),
    "fp8": Precision(
        serve_args={"dtype": "bfloat16", "quantization": "fp8"},
        weight_bits=8,
        note="weights quantized at load; check the answers' quality",
    ),
    "fp8-kv8": Precision(
        serve_args={"dtype": "bfloat16", "quantization": "fp8", "kv_cache_dtype": "fp8"},
        weight_bits=8,
        note="fp8 KV cache too, which has ruined some models' answers; check their quality",
    ),
    "int8": Precision(
        serve_args={"quantization": "int8_per_channel_weight_only"},
        weight_bits=8,
        note="weights quantized at load, computed in the model's own dtype",
    ),
}
