"""The descriptions under data/: nodes, stacks, launch profiles, model configurations."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from workbook.types.base import CaptureMode, Record

SSH_HOST = re.compile(
    r"ssh://(\w[\w.+-]*@)?([A-Za-z0-9][\w.-]*|\[[0-9A-Fa-f:.]+\])(:[1-9][0-9]{0,4})?", re.ASCII
)


EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
EnvValue = Annotated[str, Field(pattern=r"^[^\x00]*$")]
Argument = Annotated[str, Field(pattern=r"^[^\x00]+$")]  # of a command; a path too


class Node(Record):
    """Where processes run.

    Args:
        host: for kind `ssh`: ssh://[user@]host[:port], where host may be an alias of ~/.ssh/config.
        python: the Python that has torch and sglang; a path on the node. `venv` names its environment instead.
        work: a folder on the node for what the workbook puts there, yours alone; by default ~/.cache/workbook. On a
            local node the workbook's own folders serve.
        stack: what its own Python has.
        env: added to the environment of everything that runs there.
        gpus: indices of those that may be used; all of them where left out.
    """

    name: str
    kind: Literal["local", "ssh"] = "local"
    host: str | None = None
    python: Argument | None = None
    venv: Argument | None = None
    work: Argument | None = None
    stack: str = "embedded"
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    gpus: tuple[Annotated[int, Field(ge=0)], ...] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.kind == "ssh") != (self.host is not None):
            raise ValueError("host belongs to a node of kind ssh, and such a node needs one")
        if self.host is not None and not SSH_HOST.fullmatch(self.host):
            raise ValueError(
                f"{self.host!r} is not ssh://[user@]host[:port], where host is a name or an alias"
            )
        if self.python and self.venv:
            raise ValueError("give python or venv, not both")
        if self.work is not None and not self.work.startswith(("/", "~/")):
            raise ValueError(f"work is {self.work!r}; it has to begin with / or ~/")
        return self


class DiskUse(Record):
    """Disk that an environment takes once it is made, and at most while it is made; GB of 10^9 bytes."""

    installed_gb: float = Field(gt=0)
    peak_gb: float = Field(gt=0)
    measured: str


class Stack(Record):
    """A named, locked set of versions. `full` and `minimal` are absent where the size was never measured."""

    name: str
    torch: str
    flashinfer: str
    sglang: str
    purpose: str
    full: DiskUse | None = None
    minimal: DiskUse | None = None


class LaunchProfile(Record):
    """What a server is launched with: the intent, not yet the flags of one SGLang version.

    Args:
        model: a folder or Hugging Face name; `tiny` and `tiny:hidden=2048,layers=16` are made on the node.
        tp: tensor-parallel size.
        ep: expert-parallel size, a divisor of `tp`; at 1 every rank has a slice of every expert.
        quantization: as SGLang names it, like the backends below; the model's own where left out.
        moe_runner: what runs the experts.
        moe_a2a: what exchanges tokens between expert-parallel ranks; all-reduce alone where left out.
        nsa_decode_backend: kernels of sparse attention in decode; newer SGLang calls it DSA.
        nsa_prefill_backend: the same in prefill.
        all_reduce: `auto` leaves it to SGLang; `nccl` and `mscclpp` put the custom kernel out of the way, which goes
            before both, and MSCCL++ takes the small messages.
        memory_fraction: share of the GPU's free memory at start for weights and KV cache.
        extra_flags: flags of SGLang for what no key here says; each one as on the command line.
        env: added to the server's environment. A secret (TOKEN, KEY, SECRET or PASSWORD in its name) is shown as a
            reference to the variable, never in clear.
        concurrencies: requests in flight, a benchmark point each.
        requests_per_slot: requests of a point, as a multiple of its concurrency.
        side_by_side: two of its servers fit the node's memory at once, so a comparison can alternate point by point.
    """

    name: str
    description: str
    model: Argument
    load_format: Literal["auto", "dummy"] = "auto"
    device: Literal["cpu", "cuda"] = "cuda"
    tp: int = Field(default=1, ge=1)
    ep: int = Field(default=1, ge=1)
    quantization: str | None = None
    attention_backend: str | None = None
    moe_runner: str | None = None
    moe_a2a: str | None = None
    nsa_decode_backend: str | None = None
    nsa_prefill_backend: str | None = None
    all_reduce: Literal["auto", "nccl", "mscclpp"] = "auto"
    capture_mode: CaptureMode = CaptureMode.DECODE_GRAPHS
    memory_fraction: float | None = Field(default=None, gt=0, le=1)
    extra_flags: tuple[Argument, ...] = ()
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    concurrencies: tuple[Annotated[int, Field(ge=1, le=65536)], ...] = Field(min_length=1)
    input_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=1)
    requests_per_slot: int = Field(default=4, ge=1)
    side_by_side: bool = False
    note: str = ""


class Checkpoint(Record):
    """What one checkpoint of a family adds to the family's config.json.

    Args:
        config: values that differ from the family's.
        quantization_config: what stands in config.json under this name.
        hf_quant_config: hf_quant_config.json, which modelopt writes beside config.json.
        published: its name on the Hugging Face hub.
    """

    config: dict[str, JsonValue] = Field(default_factory=dict)
    quantization_config: dict[str, JsonValue] | None = None
    hf_quant_config: dict[str, JsonValue] | None = None
    published: str | None = Field(default=None, pattern=r"^[\w.-]+/[\w.-]+$")


class ModelFamily(Record):
    """Checkpoints with one shape. `{3..77}` in a module's name stands for one name per layer, both ends included.

    Args:
        sources: where the values were found: an address, or "project: file".
        config: config.json without its quantization_config.
        checkpoints: name -> what it adds.
        note: what was not found, or inferred.
    """

    name: str
    description: str
    sources: tuple[str, ...] = Field(min_length=1)
    config: dict[str, JsonValue]
    checkpoints: dict[str, Checkpoint] = Field(min_length=1)
    note: str = ""

    @model_validator(mode="after")
    def _has_a_shape(self) -> Self:
        if missing := {"architectures", "model_type", "num_hidden_layers"} - self.config.keys():
            raise ValueError(f"config says no {' and no '.join(sorted(missing))}")
        if any(
            "quantization_config" in one
            for one in (self.config, *(c.config for c in self.checkpoints.values()))
        ):
            raise ValueError("quantization_config belongs to a checkpoint, beside its config")
        return self
