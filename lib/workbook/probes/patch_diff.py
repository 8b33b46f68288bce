"""Print what each patch does to the installed FlashInfer, as a JSON array of unified diffs; nothing is patched.

    PYTHONPATH=<overlay>:<FlashInfer's folder> python patch_diff.py custom_op [NAME...]

A patch that does not know the installed code gives `{"patch", "target", "refused"}` instead of a diff.
`cures` is what upstream already does about the function.
"""

import difflib
import inspect
import sys

from workbook_overlay.answer import answer


def diffs(patch_name: str) -> list[dict]:
    from workbook_overlay import patches, upstream

    patch = patches.load(patch_name)
    module = patches.target(patch_name)
    if module is None:
        return [
            {
                "patch": patch.NAME,
                "target": patches.TARGETS[patch_name][0],
                "refused": "no such module is installed",
            }
        ]
    cured = upstream.cures(module) if "fp4_quantize" in patch.KNOWN else []
    try:
        hashes = patches.check(patch, module)
    except patches.PatchRefused as refusal:
        return [{"patch": patch.NAME, "target": module.__name__, "refused": str(refusal), "cures": cured}]
    return [diff(patch, module, name, sha) | {"cures": cured} for name, sha in hashes.items()]


def diff(patch, module, name: str, sha: str) -> dict:
    source = inspect.getsource(inspect.unwrap(vars(module)[name]))
    file = module.__name__.replace(".", "/") + ".py"
    lines = difflib.unified_diff(
        source.splitlines(),
        patch.patched_source(name, source).splitlines(),
        f"a/{file}",
        f"b/{file}",
        lineterm="",
    )
    return {
        "patch": patch.NAME,
        "target": f"{module.__name__}.{name}",
        "source_sha256": sha,
        "known_in": patch.KNOWN[name][sha],
        "diff": "\n".join(lines),
    }


def all_diffs() -> list[dict]:
    from workbook_overlay.declare import declare_gpu

    declare_gpu("sm120")  # FlashInfer asks for a GPU when it is imported
    return [one for name in sys.argv[1:] for one in diffs(name)]


if __name__ == "__main__":
    sys.exit(answer(all_diffs))
