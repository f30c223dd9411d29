"""``tf.config`` and its like answer as on a machine with one GPU; what a script says about its memory is noted."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch


def pretend_card(tf: Any, name: str, capability: tuple[int, int]) -> dict[str, Any]:
    """For the rest of the process. Returns the settings of the run, which fill as the script says them."""
    seen: dict[str, Any] = {}
    listed, place = tf.config.list_physical_devices, tf.device
    gpu = type(listed("CPU")[0])(name="/physical_device:GPU:0", device_type="GPU")

    def list_devices(device_type: str | None = None) -> list[Any]:
        found = [] if device_type == "GPU" else listed(device_type)
        return [*found, gpu] if device_type in (None, "GPU") else found

    def set_growth(device: Any, enable: bool) -> None:
        seen["memory_growth"] = bool(enable)

    def limit(device: Any, configurations: Any) -> None:
        limits = [each.memory_limit for each in configurations if getattr(each, "memory_limit", None)]
        if device.device_type == "GPU" and limits:
            seen["memory_limit_mb"] = int(limits[0])

    def device(named: Any) -> Any:
        return place(None if "GPU" in str(named).upper() else named)

    answers: dict[str, Any] = {
        "list_physical_devices": list_devices,
        "get_visible_devices": list_devices,
        "set_visible_devices": lambda devices, device_type=None: None,
        "set_memory_growth": set_growth,
        "get_memory_growth": lambda device: seen.get("memory_growth", False),
        "set_logical_device_configuration": limit,
        "set_virtual_device_configuration": limit,
        "get_device_details": lambda device: {"device_name": name, "compute_capability": capability},
    }
    for module in (tf.config, tf.config.experimental):
        for function, answer in answers.items():
            if hasattr(module, function):
                patch.object(module, function, answer).start()
    patch.object(tf, "device", device).start()
    patch.object(tf.test, "is_gpu_available", lambda *_, **__: True).start()
    patch.object(tf.test, "is_built_with_cuda", lambda: True).start()
    patch.object(tf.test, "gpu_device_name", lambda: "/device:GPU:0").start()
    return seen
