"""A stub of nvidia-ml-py: two GPUs whose figures are made up. The second one tells neither power nor clock."""

import os
from types import SimpleNamespace

NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0
UUIDS = ["GPU-aaaa", "GPU-bbbb"]


class NVMLError(Exception):
    pass


def nvmlInit():
    if os.environ.get("STUB_NVML") == "no driver":
        raise NVMLError("Driver Not Loaded")


def nvmlDeviceGetCount():
    return len(UUIDS)


def nvmlDeviceGetHandleByIndex(index):
    if index not in range(len(UUIDS)):
        raise NVMLError("Invalid Argument")
    return index


def nvmlDeviceGetHandleByUUID(uuid):
    return UUIDS.index(uuid)


def nvmlDeviceGetIndex(handle):
    return handle


def nvmlDeviceGetUtilizationRates(handle):
    return SimpleNamespace(gpu=97, memory=40)


def nvmlDeviceGetMemoryInfo(handle):
    return SimpleNamespace(used=80 * 10**9, total=150 * 10**9)


def nvmlDeviceGetPowerUsage(handle):
    if handle == 1:
        raise NVMLError("Not Supported")
    return 699_500


def nvmlDeviceGetClockInfo(handle, kind):
    if handle == 1 or kind != NVML_CLOCK_SM:
        raise NVMLError("Not Supported")
    return 1755


def nvmlDeviceGetTemperature(handle, sensor):
    return 61


def nvmlDeviceGetCurrentClocksEventReasons(handle):
    return 0x1 | 0x4 | 0x40 if handle == 0 else 0x1 | 0x2 | 0x10 | 0x100
