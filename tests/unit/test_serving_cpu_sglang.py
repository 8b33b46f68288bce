"""The stand-ins that let SGLang import without a GPU, each in a process of its own, with a toy torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbook.paths import OVERLAY

TORCH = """
class _Operators:
    pass


class ops:
    torchvision = _Operators()

    @staticmethod
    def load_library(path):
        if "broken" in open(path).read():
            raise OSError("undefined symbol")
        ops.torchvision.nms = ops.torchvision.qnms = "from the extension"


class library:
    @staticmethod
    def define(name, schema):
        operator = name.partition("::")[2]
        assert not hasattr(ops.torchvision, operator), "defined twice: the real torch aborts"
        setattr(ops.torchvision, operator, "from the stand-in")
"""


def python(code: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(OVERLAY), str(folder)])
    return subprocess.run(
        [sys.executable, "-S", "-c", f"import sitecustomize\n{code}"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path, "WORKBOOK_CPU_SGLANG": "1"} | env,
        capture_output=True,
        text=True,
    )


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_any_kernel_can_be_imported_and_none_can_be_called(tmp_path: Path) -> None:
    done = python(
        """
import sgl_kernel
from sgl_kernel import silu_and_mul_cpu
from sgl_kernel.kvcacheio import transfer_kv
assert silu_and_mul_cpu.__name__ == "silu_and_mul_cpu"
for function, name in ((silu_and_mul_cpu, "sgl_kernel.silu_and"), (transfer_kv, "kvcacheio.transfer_kv")):
    try:
        function(1, out=2)
    except NotImplementedError as error:
        assert name in str(error), error
    else:
        raise SystemExit("a kernel that is not there was called")
print("done")
""",
        tmp_path,
    )
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("probe", ["import sgl_kernel.flash_attn", "from sgl_kernel import __version__"])
def test_what_sglang_probes_for_stays_absent(tmp_path: Path, probe: str) -> None:
    done = python(f"import sgl_kernel\ntry:\n    {probe}\nexcept ImportError:\n    print('absent')", tmp_path)
    assert done.stdout == "absent\n", done.stderr


def test_an_installed_sgl_kernel_comes_first_and_is_not_completed(tmp_path: Path) -> None:
    write(tmp_path, {"sgl_kernel/__init__.py": "real = True\n"})
    done = python(
        "import sgl_kernel\nprint(sgl_kernel.real)\n"
        "try:\n    import sgl_kernel.kvcacheio\nexcept ImportError:\n    print('absent')",
        tmp_path,
    )
    assert done.stdout == "True\nabsent\n", done.stderr


def test_without_the_switch_there_is_no_stand_in(tmp_path: Path) -> None:
    done = python("import sgl_kernel", tmp_path, WORKBOOK_CPU_SGLANG="")
    assert "ModuleNotFoundError: No module named 'sgl_kernel'" in done.stderr


@pytest.mark.parametrize(("extension", "whose"), [("broken", "stand-in"), ("works", "extension")])
def test_operators_are_defined_only_where_torchvisions_extension_fails(
    tmp_path: Path, extension: str, whose: str
) -> None:
    write(
        tmp_path,
        {
            "torch.py": TORCH,
            "torchvision/__init__.py": "import torch\no = torch.ops.torchvision\nprint(o.nms, o.qnms)",
            "torchvision/_C.so": extension,
        },
    )
    done = python("import torchvision", tmp_path)
    assert done.stdout == f"from the {whose} from the {whose}\n", done.stderr


def test_without_torchvision_nothing_happens(tmp_path: Path) -> None:
    done = python(
        "try:\n    import torchvision\nexcept ModuleNotFoundError as error:\n    print(error.name)", tmp_path
    )
    assert done.stdout == "torchvision\n", done.stderr
