"""Print what each GPU does, once a second, as JSON lines, until this process is ended.

    python telemetry.py [--period SECONDS]

Each line is {"time_s", "gpu", "utilization_percent", "memory_gb", "power_w", "sm_clock_mhz", "temperature_c",
"throttled"}: `gpu` is the index that nvidia-smi shows, memory is in GB of 10^9 bytes, and `throttled` names why the
clock is held down; an idle GPU, or one whose clock somebody set, is not throttled. What a GPU cannot tell is null. With
CUDA_VISIBLE_DEVICES set, its GPUs alone. Where there is no GPU to be read the only line is {"none": REASON}. Needs
nvidia-ml-py, which torch's and SGLang's CUDA builds bring along.
"""

import argparse
import json
import os
import sys
import time

REASONS = {
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x020: "thermal, software",
    0x040: "thermal, hardware",
    0x080: "power brake",
}  # idle (0x1), clocks that were set (0x2, 0x100) and clocks tied to another GPU's (0x10) hold nothing down


def reasons(mask: int) -> list[str]:
    """The names of the bits by which a clock is throttled."""
    return [name for bit, name in REASONS.items() if mask & bit]


def chosen(nvml) -> list:
    """Handles of the GPUs that CUDA_VISIBLE_DEVICES names, by index or UUID; of all where it is not set."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    handles = []
    for name in filter(None, map(str.strip, named.split(","))):
        if name.lstrip("-").isdigit():
            if int(name) < 0:  # as for CUDA, whatever stands after it is not visible
                break
            handles.append(nvml.nvmlDeviceGetHandleByIndex(int(name)))
        else:
            handles.append(nvml.nvmlDeviceGetHandleByUUID(name))
    return handles


def sample(nvml, handle) -> dict:
    """What one GPU does now."""

    def tell(ask, *args):
        try:
            return ask(handle, *args)
        except (nvml.NVMLError, AttributeError):  # not every GPU, driver or binding tells all
            return None

    throttle = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    utilization, memory = tell(nvml.nvmlDeviceGetUtilizationRates), tell(nvml.nvmlDeviceGetMemoryInfo)
    power = tell(nvml.nvmlDeviceGetPowerUsage)
    return {
        "time_s": round(time.time(), 3),
        "gpu": nvml.nvmlDeviceGetIndex(handle),
        "utilization_percent": None if utilization is None else utilization.gpu,
        "memory_gb": None if memory is None else memory.used / 1e9,
        "power_w": None if power is None else power / 1000,
        "sm_clock_mhz": tell(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        "temperature_c": tell(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        "throttled": reasons(tell(throttle or nvml.nvmlDeviceGetCurrentClocksThrottleReasons) or 0),
    }


def watch(period_s: float) -> str:
    """Print samples without end; comes back with the reason where there is nothing to sample."""
    try:
        import pynvml as nvml
    except ImportError:
        return "no nvidia-ml-py in this Python"
    try:
        nvml.nvmlInit()
        handles = chosen(nvml)
    except nvml.NVMLError as error:
        return f"NVML: {error}"
    if not handles:
        return "no GPU is visible"
    due = time.monotonic()
    while True:
        for handle in handles:
            try:
                print(json.dumps(sample(nvml, handle)))
            except nvml.NVMLError as error:
                return f"NVML: {error}"
        sys.stdout.flush()
        due = max(due + period_s, time.monotonic())  # a late sample does not make the next ones hurry
        time.sleep(max(due - time.monotonic(), 0.0))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--period", type=float, default=1.0)
    print(json.dumps({"none": watch(parser.parse_args(argv).period)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
