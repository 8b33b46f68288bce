"""Print the SHA-256 of the source of every installed function that a patch acts on, as JSON.

    PYTHONPATH=<overlay>:<SGLang's sources>:<FlashInfer's folder> python -P source_hashes.py [--teach]

`--teach` enters them in the overlay's `known.json`, under the installed version: how the patches learn a version whose
sources somebody has read. It is run by hand, never by the workbook.
"""

import json
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from workbook_overlay.answer import answer


def hashes() -> dict[str, str]:
    from workbook_overlay import patches
    from workbook_overlay.declare import declare_gpu

    declare_gpu("sm120")  # FlashInfer asks for a GPU when it is imported
    found = {}
    for name in patches.TARGETS:
        with suppress(patches.PatchRefused):  # a function that this version lacks
            if patches.of_sglang(name):
                read = patches.read_targets(name)
                found |= {function: patches.text_hash(source) for _module, function, source in read}
                continue
            for module in patches.targets(name):
                originals = patches.originals(name, module)
                found |= {one: patches.source_hash(function) for one, function in originals.items()}
    return found


def teach(found: dict[str, str]) -> dict[str, str]:
    import flashinfer
    import workbook_overlay
    from workbook_overlay import patches

    of_sglang = {
        one
        for name in patches.TARGETS
        if patches.of_sglang(name)
        for each in patches.TARGETS[name].values()
        for one in each
    }
    file = Path(workbook_overlay.__file__).with_name("known.json")
    known = json.loads(file.read_text())
    for name, sha in found.items():
        here = f"SGLang {version('sglang')}" if name in of_sglang else flashinfer.__version__
        versions = known.setdefault(name, {}).get(sha, "")
        if here not in versions.split(", "):
            known[name][sha] = ", ".join(filter(None, [versions, here]))
    file.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
    return found


if __name__ == "__main__":
    sys.exit(answer(lambda: teach(hashes()) if "--teach" in sys.argv else hashes()))
