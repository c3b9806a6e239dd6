"""Launching vLLM: processes, readiness, identity, failures and verified teardown.

vLLM runs only as a child process; nothing here imports it.
"""

from tuner.serving.gpu_stats import GpuWatch, visible_gpus
from tuner.serving.hardware import Hardware, detect_hardware
from tuner.serving.ownership import reap_orphans
from tuner.serving.scrape import ScrapeWatch, reset_prefix_cache
from tuner.serving.server import ServerSpec, VllmServer
from tuner.serving.vllm_install import VllmInstall, find_vllm

__all__ = [
    "GpuWatch",
    "Hardware",
    "ScrapeWatch",
    "ServerSpec",
    "VllmInstall",
    "VllmServer",
    "detect_hardware",
    "find_vllm",
    "reap_orphans",
    "reset_prefix_cache",
    "visible_gpus",
]
