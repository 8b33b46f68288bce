"""Ask the SGLang on this Python's path what its command line takes, and what it makes of given ones. No GPU is asked.

    python -P sglang_parser.py <REQUEST      where REQUEST is a JSON array of argument lists, maybe empty

Prints one JSON line: the options, and for each argument list what `parse_args` made of it, or its refusal.
"""

import argparse
import functools
import json
import sys

from transformers import AutoConfig

# A newer transformers brings some of the configs that an older SGLang registers; registering them anew is harmless.
AutoConfig.register = staticmethod(functools.partial(AutoConfig.register, exist_ok=True))

from sglang.srt.server_args import ServerArgs  # noqa: E402

COUNTS = {None: (1, 1), 0: (0, 0), "?": (0, 1), "*": (0, None), "+": (1, None)}


class Parser(argparse.ArgumentParser):
    """Its refusals are exceptions."""

    def error(self, message):
        raise ValueError(message)


def takes_effect(action):
    """Whether using the option does anything: of some that it gave up, SGLang only says so."""
    return type(action).__name__ not in ("_HelpAction", "DeprecatedAction")


def described(action):
    """An option as the record has it; what is usual is left out."""
    fewest, most = COUNTS[action.nargs]
    kind = action.type.__name__ if action.type in (int, float) else "text"
    told = {"sets": action.dest, "kind": kind, "fewest": fewest, "most": most}
    told["choices"] = sorted(map(str, action.choices or ()))
    usual = {"kind": "text", "fewest": 1, "most": 1, "choices": []}
    return {key: value for key, value in told.items() if key not in usual or value != usual[key]}


def parsed(parser, argv):
    try:
        return {key: plain(value) for key, value in vars(parser.parse_args(argv)).items()}
    except ValueError as refusal:
        return {"refused": str(refusal)}


def plain(value):
    return value if isinstance(value, (str, int, float, bool, list, type(None))) else repr(value)


def main():
    requests = json.load(sys.stdin)
    parser = Parser(allow_abbrev=True)
    ServerArgs.add_cli_args(parser)
    options = {
        flag: described(action)
        for action in parser._actions
        if takes_effect(action)
        for flag in action.option_strings
    }
    print(json.dumps({"options": options, "parsed": [parsed(parser, argv) for argv in requests]}))


main()
