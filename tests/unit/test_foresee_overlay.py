"""What a forecast stands on: GPUs that are declared, a group of one, questions answered, memory counted by hand."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from workbook.paths import OVERLAY

DECLARED = 'from workbook_foresee import device\ntold = device.declare_gpus("sm120", 8)\n'
PREPARED = """
import json, torch
from torch._subclasses.fake_tensor import FakeTensorMode

def tried(question):
    try:
        return str(question())
    except BaseException as error:
        return type(error).__name__
"""
ON_CUDA = """
def within():
    with torch.cuda.device(0):
        return torch.ones(4, device="cuda").device

ones = lambda device="cuda": torch.ones(4, device=device)
asked = {
    "copied to": lambda: ones().copy_(ones("cpu")).device,
    "copied within": lambda: ones().copy_(ones()).device,
    ".cuda()": lambda: ones("cpu").cuda().device,
    ".to()": lambda: ones("cpu").to("cuda").device,
    "indexed": lambda: ones()[torch.tensor([1], device="cuda")].device,
    "with device": within,
    "capability": torch.cuda.get_device_capability,
    "count": torch.cuda.device_count,
    "available": torch.cuda.is_available,
    "name": lambda: torch.cuda.get_device_name(7),
    "multiprocessors": lambda: torch.cuda.get_device_properties(0).multi_processor_count,
    "free": lambda: torch.cuda.mem_get_info()[0] >> 30,
    "stream": lambda: torch.cuda.current_stream().cuda_stream,
    "waited": lambda: torch.cuda.synchronize(),
}
with FakeTensorMode():
    found = {name: tried(question) for name, question in asked.items()}
    found["made"] = tried(lambda: torch.tensor([1, 2], device="cuda").device)
    found["back"] = tried(lambda: ones().cpu().device)
found["real"] = tried(lambda: ones().fill_(2))
"""
TRUE_OF_THE_GPU = {
    "capability": "(12, 0)",
    "count": "8",
    "available": "True",
    "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "multiprocessors": "188",
    "free": "95",
    "stream": "0",
    "waited": "None",
}


def python(code):
    """The JSON that a Python under the overlay prints last."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(OVERLAY)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().rpartition("\n")[2])


@pytest.fixture(scope="module")
def declared():
    """What a process that was told of GPUs answers."""
    return python(
        f"{DECLARED}{PREPARED}{ON_CUDA}{ANSWERS}"
        "print(json.dumps({'told': told, 'gpu': found, 'questions': questions}))"
    )


@pytest.fixture(scope="module")
def plain():
    """What a process that was told nothing answers."""
    return python(
        f"{PREPARED}{ON_CUDA}{MEMORY}{LAYERS}print(json.dumps({{'gpu': found, 'bytes': counted, 'few': layers}}))"
    )


def test_fake_tensors_live_on_gpus_that_are_not_there(declared):
    found = declared["gpu"]
    assert {name: found[name] for name in TRUE_OF_THE_GPU} == TRUE_OF_THE_GPU
    for name in ("copied to", "copied within", ".cuda()", ".to()", "indexed", "with device", "made"):
        assert (name, found[name]) == (name, "cuda:0")
    assert found["back"] == "cpu"
    assert found["real"] in ("NotImplementedError", "RuntimeError")  # no tensor is real
    assert declared["told"]["compute_capability"] == [12, 0] and declared["told"]["arch_list"] == "12.0a"


def test_without_the_declaration_there_are_none(plain):
    found = plain["gpu"]
    if found["available"] == "True":
        pytest.skip("there is a GPU here")
    assert found["count"] == "0"
    for name in asked_of_a_driver():
        assert (name, found[name] in ("RuntimeError", "AssertionError")) == (name, True)


def asked_of_a_driver():
    on_tensors = {"copied to", "copied within", ".cuda()", ".to()", "indexed", "with device", "real"}
    return on_tensors | TRUE_OF_THE_GPU.keys() - {"count", "available"}


GROUP = """
from workbook_overlay.cpu_sglang import complete_torchvision
from workbook_overlay.hook import before_import
before_import("torchvision", complete_torchvision)
import torch.distributed as dist
from workbook_foresee import group
group.join(5, 8)
with FakeTensorMode():
    one = torch.ones(4, device="cuda")
    dist.all_reduce(one)
    gathered = torch.empty(32, device="cuda")
    dist.all_gather_into_tensor(gathered, one)
half = dist.new_group([4, 5, 6, 7], backend="nccl")
from sglang.srt.distributed.device_communicators.pynccl import PyNcclCommunicator
with PyNcclCommunicator(half, 0).change_state(enable=True):
    reduced = PyNcclCommunicator(half, 0).outplace_all_reduce(torch.ones(2, 3))
print(json.dumps({"rank": dist.get_rank(), "size": dist.get_world_size(), "in half": dist.get_rank(half),
    "half": dist.get_world_size(half), "backend": dist.get_backend(half), "gathered": list(gathered.shape),
    "reduced": list(reduced.shape)}))
"""


def test_one_rank_is_a_group_by_itself_and_waits_for_nobody():
    if importlib.util.find_spec("sglang") is None:
        pytest.skip("no SGLang here")
    assert python(f"{DECLARED}{PREPARED}{GROUP}") == {
        "rank": 5,
        "size": 8,
        "in half": 1,
        "half": 4,
        "backend": "fake",
        "gathered": [32],
        "reduced": [2, 3],
    }


ANSWERS = '''
from workbook_foresee import kernels
from workbook_foresee.answers import answered, unanswered
library = torch.library.Library("asked", "FRAGMENT")
library.define("no_fake(Tensor x) -> Tensor")
space = {"__name__": "sglang.srt.layers.asks", "torch": torch}
exec("""
def item(x): return x.item()
def branch(x): return bool(x.sum() > 0)
def number(x): return float(x), int(x)
def alike(x): return torch.allclose(x, x), torch.equal(x, x)
def pinned(x): return x.pin_memory().is_pinned()
def made(): return torch.empty(3, pin_memory=True).shape[0]
def repeated(x, counts): return x.repeat_interleave(counts).shape[0]
def repeated_too(x, counts): return torch.repeat_interleave(x, counts).shape[0]
def shapeless(x): return tuple(torch.ops.asked.no_fake(x).shape)
def of_default(x): return tuple(torch.ops.asked.no_fake.default(x).shape)
""", space)
questions = {}
with FakeTensorMode(allow_non_fake_inputs=True):
    x, n = torch.ones(3, device="cuda"), torch.ones(3, device="cuda", dtype=torch.int64)
    asked = {
        "item": lambda: space["item"](x.sum()), "int item": lambda: space["item"](n.sum()),
        "branch": lambda: space["branch"](x), "number": lambda: space["number"](x.sum()),
        "alike": lambda: space["alike"](x), "pinned": lambda: space["pinned"](torch.ones(3)),
        "made": space["made"], "address": lambda: x.data_ptr(),
        "repeated": lambda: space["repeated_too"](x, n),
        "shapeless": lambda: space["shapeless"](x), "of default": lambda: space["of_default"](x),
    }
    questions["bare"] = {name: tried(one) for name, one in asked.items()}
    with answered(lambda: 17):
        questions["answered"] = {name: tried(one) for name, one in asked.items()}
        questions["known"] = torch.tensor(2.5).item()
        with unanswered():
            questions["unanswered"] = {name: tried(one) for name, one in asked.items()}
        questions["again"] = tried(asked["item"])
questions["notes"] = kernels.STAND_INS
'''


@pytest.fixture
def answers(declared):
    return declared["questions"]


def test_a_question_for_a_value_is_answered(answers):
    assert answers["answered"] == {
        "item": "1.0",
        "int item": "1",
        "branch": "True",
        "number": "(1.0, 1)",
        "alike": "(True, True)",
        "pinned": "False",
        "made": "3",
        "address": "0",
        "repeated": "17",
        "shapeless": "(3,)",
        "of default": "(3,)",
    }
    assert answers["known"] == 2.5  # what a tensor knows it says itself


def test_each_answer_is_noted_once_with_who_asked(answers):
    notes = answers["notes"]
    assert "sglang.srt.layers.asks:item asks for item of a tensor: told 1.0" in notes
    assert "sglang.srt.layers.asks:item asks for item of a tensor: told 1" in notes
    assert "sglang.srt.layers.asks:branch asks for __bool__ of a tensor: told True" in notes
    assert (
        "sglang.srt.layers.asks:repeated_too repeats by a tensor: told 17, the tokens of the batch" in notes
    )
    assert any(one.startswith("asked.no_fake") and "has no fake" in one for one in notes)
    assert len(notes) == len(set(notes)) and not any("2.5" in one for one in notes)


def test_without_answers_a_trace_meets_the_questions_as_they_are(answers):
    asked_for_values = (
        "item",
        "int item",
        "branch",
        "number",
        "alike",
        "repeated",
        "shapeless",
        "of default",
    )
    for found in (answers["bare"], answers["unanswered"]):
        for name in asked_for_values:
            assert (name, found[name].endswith(("Exception", "Error"))) == (name, True)
    assert answers["again"] == "1.0"


MEMORY = """
from workbook_foresee.memory import peak_bytes

def chain(x):
    a = x + 1
    b = a * 2
    return b * 3

def with_a_view(x):
    a = x + 1
    v = a.view(2, -1)
    b = x * 2
    c = b * 3
    return c.sum() + v.sum()

def in_place(x):
    a = x + 1
    a.add_(1)
    a.mul_(2)
    return a

def only_views(x):
    return x.view(2, -1).t(), x[1:]

def several(x):
    parts = torch.split(x * 1, x.shape[0] // 4)
    return parts[0] + 1

counted = {}

def counting(name):
    def backend(graph, example_inputs):
        counted[name] = peak_bytes(graph)
        return graph
    return backend

for function in (chain, with_a_view, in_place, only_views, several):
    x = torch.zeros(1024)
    torch.compile(function, backend=counting(function.__name__), fullgraph=True)(x)
    torch._dynamo.reset()
half = torch.zeros(512, dtype=torch.float16)
torch._dynamo.mark_dynamic(half, 0)
torch.compile(chain, backend=counting("dynamic"), fullgraph=True)(half)
"""


def test_memory_is_what_a_count_by_hand_comes_to(plain):
    tensor = 1024 * 4
    assert plain["bytes"] == {
        "chain": 2 * tensor,  # one is made while the one before is read
        "with_a_view": 3 * tensor,  # the first lives for its view, while b becomes c
        "in_place": tensor,
        "only_views": 0,  # of the input's own memory
        "several": tensor + tensor // 4,  # the parts are views of one, and the sum is a quarter
        "dynamic": 2 * 512 * 2,
    }


LAYERS = """
from torch import nn
from workbook_foresee import stops

class Dense(nn.Module):
    def __init__(self, window=None, method="plain"):
        super().__init__()
        self.mlp = nn.Linear(2, 2)
        self.attn = nn.Identity()
        self.attn.sliding_window_size = window
        self.mlp.quant_method = type(method, (), {})()

class Experts(Dense):
    def __init__(self):
        super().__init__()
        self.mlp = nn.ModuleDict({"gate": nn.Linear(2, 2), "experts": nn.Identity()})

def model(*layers):
    outer, inner = nn.Module(), nn.Module()
    inner.layers, inner.end_layer = nn.ModuleList(layers), len(layers)
    outer.model = inner
    return outer

def few(one):
    with stops.few_layers(one) as number:
        within = getattr(getattr(one, "model", None), "end_layer", None)
    return [number, within, getattr(getattr(one, "model", None), "end_layer", None)]

def fails(one):
    try:
        with stops.few_layers(one):
            raise ValueError
    except ValueError:
        return one.model.end_layer

foreign = nn.Module()
foreign.model = nn.Linear(2, 2)
layers = {
    "all alike": few(model(Dense(), Dense(), Dense())),
    "experts at the third": few(model(Dense(), Dense(), Experts(), Experts(), Dense())),
    "a window": few(model(Dense(), Dense(8), Dense(), Dense(8))),
    "another quantization": few(model(Dense(), Dense(), Dense(), Dense(method="fp4"))),
    "after a failure": fails(model(Dense(), Dense())),
    "no layers": few(foreign),
    "alike": stops.kind(Dense()) == stops.kind(Dense()),
}
"""


def test_as_many_layers_as_have_each_kind_and_all_of_them_afterwards(plain):
    assert plain["few"] == {
        "all alike": [1, 1, 3],
        "experts at the third": [3, 3, 5],
        "a window": [2, 2, 4],
        "another quantization": [4, 4, 4],
        "after a failure": 2,
        "no layers": [0, None, None],
        "alike": True,
    }


RULES = """
class Args:
    def __init__(self, off=False):
        self.disable_piecewise_cuda_graph = off
        self.lora = True
        self.tp = 8

    def check(self):
        if self.tp > 1:
            if (
                self.lora
                and self.tp == 8
            ):
                self.disable_piecewise_cuda_graph = True

    def elsewhere(self):
        if self.tp == 1:
            pass
        elif self.tp == 8:
            self.disable_piecewise_cuda_graph = True

    def otherwise(self):
        if self.tp == 1:
            self.lora = False
        else:
            self.disable_piecewise_cuda_graph = True

    def always(self):
        self.disable_piecewise_cuda_graph = True

    def not_at_all(self):
        self.disable_piecewise_cuda_graph = False

    def _handle_piecewise_cuda_graph(self):
        if self.enforce_piecewise_cuda_graph:
            return
        self.check()
"""
WATCHED = """
import json, sys
sys.path.insert(0, FOLDER)
from workbook_foresee import settings
from rules import Args
found = {}
for name in ("check", "elsewhere", "otherwise", "always", "not_at_all"):
    with settings.watched(Args) as reasons:
        args = Args()
        getattr(args, name)()
        getattr(args, name)()  # is off already
    found[name] = reasons
with settings.watched(Args) as reasons:
    Args(off=True).check()
found["by the command line"] = reasons
with settings.watched(Args) as reasons:
    pass
Args().always()
args = Args()
found["not enforced"] = settings.overruled(args)
args.enforce_piecewise_cuda_graph = True
found["enforced"] = settings.overruled(args)
found["left alone"] = [args.enforce_piecewise_cuda_graph, args.disable_piecewise_cuda_graph]
found["afterwards"], found["restored"] = reasons, "__setattr__" not in vars(Args)
print(json.dumps(found))
"""


def test_a_setting_that_switches_it_off_is_named_by_its_rule_and_place(tmp_path):
    (tmp_path / "rules.py").write_text(RULES)
    assert python(WATCHED.replace("FOLDER", repr(str(tmp_path)))) == {
        "check": ["self.lora and self.tp == 8 (rules.py:14)"],
        "elsewhere": ["self.tp == 8 (rules.py:20)"],
        "otherwise": ["not self.tp == 1 (rules.py:26)"],
        "always": ["always (rules.py:29)"],
        "not_at_all": [],
        "by the command line": [],
        "not enforced": [],
        "enforced": [
            "were it not enforced, SGLang would switch it off: self.lora and self.tp == 8 (rules.py:14)"
        ],
        "left alone": [True, False],
        "afterwards": [],
        "restored": True,
    }


HEARD = """
import json, logging
from workbook_foresee import settings
logging.disable(logging.WARNING)
log = logging.getLogger("sglang.srt.server_args")
with settings.heard() as lines:
    log.info("Disable piecewise CUDA graph because\\n of X")
    log.warning("Cuda graph is disabled, so piecewise too")
    log.info("Disable radix cache")
    log.info("piecewise graphs are on")
log.warning("Disable piecewise again")
print(json.dumps([lines, logging.root.manager.disable, logging.getLogger("sglang").handlers == []]))
"""


def test_what_sglang_says_of_switching_it_off_is_kept_and_nothing_else():
    lines = ["Disable piecewise CUDA graph because of X", "Cuda graph is disabled, so piecewise too"]
    assert python(HEARD) == [lines, 30, True]


SEARCH = """
import json, sys
sys.path.insert(0, FOLDER)
import torch
from outer import run
from workbook_overlay.passing import watch
from workbook_overlay.search import Search

x = torch.ones(4)
with watch() as seen:
    run(x)

def stopped():
    torch._dynamo.reset()
    try:
        torch.compile(run, fullgraph=True, backend="eager")(x)
    except Exception as error:
        return error

found = {}
for own in (True, False):
    search = Search(run, "outer", seen, has_kernels=False, own_opaque=own)
    found[str(own)] = search.next(stopped())
    search.passed.restore()
print(json.dumps(found))
"""


def test_functions_of_the_model_itself_become_no_single_nodes(tmp_path):
    """They take more than tensors; elsewhere the innermost that stops may become one."""
    (tmp_path / "outer.py").write_text(
        "import time\n\ndef layer(x):\n    time.sleep(0)\n    return x + 1\n\ndef run(x):\n    return layer(x) * 2\n"
    )
    found = python(SEARCH.replace("FOLDER", repr(str(tmp_path))))
    assert found["True"][0] == "opaque" and found["True"][1].startswith("layer ")
    assert found["False"][0] is None and "it needs an operator with a fake of its own" in found["False"][1]
