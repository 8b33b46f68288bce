"""Print what each patch does to the installed code, as a JSON array of unified diffs; nothing is patched.

    PYTHONPATH=<overlay>:<FlashInfer's folder> python patch_diff.py custom_op [NAME...]

A patch that does not know the installed code gives `{"patch", "target", "refused"}` instead of a diff.
`cures` is what upstream already does about the function.
"""

import difflib
import inspect
import sys

from workbook_overlay.answer import answer


def diffs(name: str) -> list[dict]:
    from workbook_overlay import patches

    try:
        return [diff(name, *one) for one in (read if patches.of_sglang(name) else imported)(name)]
    except patches.PatchRefused as refusal:
        return [
            {
                "patch": patches.load(name).NAME,
                "target": next(iter(patches.TARGETS[name])),
                "refused": str(refusal),
                "cures": cures(name),
            }
        ]


def imported(name: str) -> list[tuple]:
    """(module, function, source, hash) of each function that a patch of FlashInfer acts on."""
    from workbook_overlay import patches

    found = [(module, patches.check(name, module)) for module in patches.targets(name)]
    return [
        (module.__name__, one, inspect.getsource(inspect.unwrap(patches.lookup(module, one))), sha)
        for module, hashes in found
        for one, sha in hashes.items()
    ]


def read(name: str) -> list[tuple]:
    """The same of SGLang, read from its files."""
    from workbook_overlay import patches, unimported

    found = [(*one, patches.text_hash(one[-1])) for one in patches.read_targets(name)]
    for module, function, _source, sha in found:
        patches.check_known(name, f"{module}.{function}", function, sha, unimported.file_of(module))
    return found


def diff(name: str, module: str, function: str, source: str, sha: str) -> dict:
    from workbook_overlay import patches

    patch = patches.load(name)
    file = module.replace(".", "/") + ".py"
    lines = difflib.unified_diff(
        source.splitlines(),
        patch.patched_source(function, source).splitlines(),
        f"a/{file}",
        f"b/{file}",
        lineterm="",
    )
    return {
        "patch": patch.NAME,
        "target": f"{module}.{function}",
        "source_sha256": sha,
        "known_in": patches.known_sources()[function][sha],
        "diff": "\n".join(lines),
        "cures": cures(name) if function == "fp4_quantize" else [],
    }


def cures(name: str) -> list[str]:
    """What upstream does about the quantizer, for a patch that acts on it."""
    from workbook_overlay import patches, upstream

    modules = [
        sys.modules[module]
        for module, functions in patches.TARGETS[name].items()
        if "fp4_quantize" in functions and module in sys.modules
    ]
    return next((found for module in modules if (found := upstream.cures(module))), [])


def all_diffs() -> list[dict]:
    from workbook_overlay.declare import declare_gpu

    declare_gpu("sm120")  # FlashInfer asks for a GPU when it is imported
    return [one for name in sys.argv[1:] for one in diffs(name)]


if __name__ == "__main__":
    sys.exit(answer(all_diffs))
