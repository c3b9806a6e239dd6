"""Launching vLLM: processes, readiness, identity, failures and verified teardown.

vLLM runs only as a child process; nothing here imports it.
"""

from tuner.serving.hardware import Hardware, detect_hardware
from tuner.serving.ownership import reap_orphans
from tuner.serving.server import ServerSpec, VllmServer
from tuner.serving.vllm_install import VllmInstall, find_vllm

__all__ = [
    "Hardware",
    "ServerSpec",
    "VllmInstall",
    "VllmServer",
    "detect_hardware",
    "find_vllm",
    "reap_orphans",
]
