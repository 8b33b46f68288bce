"""Forecasts held against the truth: real captures on an H200, public reports, and models of data/models.

    .venv/bin/python benchmarks/forecasts.py captures reports models [--only NAME] [--jobs 2]
    .venv/bin/python benchmarks/forecasts.py tables

Needs the sources of the stacks `seed` and `hopper` (`workbook stack create NAME --sources`). Each forecast takes half a
minute of one core. What was foretold is kept in data/foresee/forecasts.json, from which `tables` makes
data/foresee/tables.md; what was run before is kept where it is not asked for again.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import yaml
from tqdm import tqdm

from workbook import catalog, recorded
from workbook.boundary.foresee import MODEL, ask, foresee, judge
from workbook.boundary.model_files import profile_for
from workbook.errors import WorkbookError
from workbook.node.connect import connect
from workbook.paths import DATA
from workbook.report.text import one_line
from workbook.serving import model_configs
from workbook.types import Forecast, Foretold, Stack
from workbook.types.foresee import CaptureEnd, RealCapture

KEPT = DATA / "foresee" / "forecasts.json"
TABLES = KEPT.with_name("tables.md")
#: What a right forecast says of a launch that ended so.
RIGHT = {
    CaptureEnd.CAPTURED: Foretold.TRACES,
    CaptureEnd.DIED: Foretold.STOPS,
    CaptureEnd.SWITCHED_OFF: Foretold.SWITCHED_OFF,
}
KEPT_FIELDS = {
    *(
        "outcome",
        "reason",
        "architecture",
        "quantization",
        "layers",
        "arch",
        "tp",
        "stack",
        "patch_level",
        "versions",
    ),
    *(
        "graphs",
        "capture_sizes",
        "compiled_sizes",
        "memory",
        "weights_gib",
        "switches",
        "chosen",
        "seconds",
        "peak_gib",
    ),
}
FP4, TP = "modelopt_fp4", 8
#: Of each family the largest model, once in each kind of number that it is published in.
MODELS = (
    *("GLM-5", "GLM-5-FP8", "GLM-5-NVFP4", "Qwen3-32B", "Qwen3-32B-FP8", "Qwen3-32B-NVFP4"),
    *("Qwen3-235B-A22B", "Qwen3-235B-A22B-FP8", "Qwen3-235B-A22B-NVFP4"),
    *("Llama-3.3-70B-Instruct", "Llama-3.3-70B-Instruct-FP8", "Llama-3.3-70B-Instruct-FP4"),
    *("DeepSeek-V3-bf16", "DeepSeek-V3", "DeepSeek-V3.1-NVFP4"),
    *("GLM-4.5", "GLM-4.5-FP8", "GLM-4.5-NVFP4", "gpt-oss-120b", "gpt-oss-120b-bf16"),
)


@dataclass(frozen=True)
class Question:
    """One forecast to make: a name, and how."""

    name: str
    ask: Callable[[], Forecast]


def capture_questions() -> Iterator[Question]:
    """The launches whose real captures are on record, with the arguments that they were launched with."""
    for one in recorded.captures():
        if one.mode == "piecewise":
            yield Question(one.name, lambda one=one: like_capture(one))


def like_capture(real: RealCapture) -> Forecast:
    files = model_configs.files(real.checkpoint)
    config = json.loads(files["config.json"])
    whole = config["num_hidden_layers"]
    for key, value in config.items():
        if isinstance(value, list) and len(value) == whole:  # one entry a layer
            config[key] = value[: real.layers]
    files["config.json"] = json.dumps(config | {"num_hidden_layers": real.layers})
    argv = [MODEL if one == real.checkpoint else one for one in real.argv]
    stack = catalog.load(Stack, "hopper")
    profile = profile_for(real.checkpoint).model_copy(update={"name": real.name})
    level = int(real.env.get("WORKBOOK_PATCH_LEVEL", 0))
    told = {"profile": profile, "stack": stack, "arch": "sm90", "tp": 1, "rank": 0, "patch_level": level}
    told |= {"layers": real.layers}
    env = {key: value for key, value in real.env.items() if key.startswith("SGLANG_")}
    spec = {"files": files, "argv": argv, "env": env, "arch": "sm90", "gpus": 1, "rank": 0}
    return judge(told, ask(connect("local"), stack, spec, level, None, lambda line: None), argv)


def report_questions() -> Iterator[Question]:
    """The public reports that can be asked again."""
    for one in yaml.safe_load((DATA / "foresee" / "replays.yaml").read_text()):
        yield Question(one["report"], lambda one=one: like_report(one))


def like_report(report: dict[str, Any]) -> Forecast:
    changes = {"tp": report["tp"], "extra_flags": tuple(report.get("flags", ()))}
    if "moe_runner" in report:
        changes["moe_runner"] = report["moe_runner"]
    profile = profile_for(report["model"]).model_copy(update=changes)
    return foresee(
        connect("local"),
        catalog.load(Stack, report["stack"]),
        profile,
        arch=report["arch"],
        quick=True,
        enforce=report.get("enforce", True),
    )


def model_questions() -> Iterator[Question]:
    """The models on every stack: as they are, and in FP4 on the case's at the highest level as well."""
    for name in MODELS:
        for stack in ("seed", "hopper", "current"):
            for level in (0, 5) if profile_for(name).quantization == FP4 and stack == "seed" else (0,):
                yield Question(
                    f"{name} on {stack} at level {level}", lambda *at, a=(name, stack, level): like_model(*a)
                )


def like_model(name: str, stack: str, level: int) -> Forecast:
    profile = profile_for(name).model_copy(update={"tp": TP})
    return foresee(connect("local"), catalog.load(Stack, stack), profile, patch_level=level, quick=True)


def made(question: Question) -> tuple[str, dict[str, Any]]:
    """What is kept of a forecast; a refusal is one that cannot tell."""
    try:
        found = question.ask()
    except WorkbookError as error:
        return question.name, {"outcome": Foretold.CANNOT_TELL, "reason": str(error)}
    kept = found.model_dump(mode="json", include=KEPT_FIELDS)
    kept["blockers"] = [
        one.model_dump(
            mode="json", include={"layer", "operation", "blamed", "past", "past_level", "passed", "message"}
        )
        for one in found.blockers
    ]
    return question.name, kept


def capture_rows(kept: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """What was foretold of each real launch, and what it came to."""
    real = {one.name: one for one in recorded.captures()}
    yield "launch", "foretold", "real", "pieces foretold", "real", "graph memory, GiB, foretold", "real", ""
    for name, told in kept["captures"].items():
        ended, graphs = real[name], told.get("graphs") or []
        hit = RIGHT[ended.outcome] == told["outcome"]
        yield (
            name,
            told["outcome"],
            ended.outcome,
            pieces_of(graphs),
            pieces_of([one.model_dump() for one in ended.graphs]),
            f"{told['memory']['total_gib']:.2f}" if told.get("memory") else "",
            f"{ended.graph_gib:.2f}" if ended.graph_gib else "",
            "hit" if hit and (not graphs or graphs[0]["pieces"] == ended.graphs[0].pieces) else "miss",
        )


def pieces_of(graphs: list[dict[str, Any]]) -> str:
    """Pieces of the first graph that Dynamo made: compiled and split."""
    return f"{graphs[0]['compiled']} + {graphs[0]['split']}" if graphs else ""


def report_rows(kept: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """What was foretold of each public report, and what it says."""
    replays = {one["report"]: one for one in yaml.safe_load((DATA / "foresee" / "replays.yaml").read_text())}
    reports = {one["id"]: one for one in yaml.safe_load((DATA / "foresee" / "reports.yaml").read_text())}
    yield "report", "held out", "asked as", "reported", "foretold", "", "place"
    for name, told in kept["reports"].items():
        asked, report = replays[name], reports[name]
        hit = asked["expect"] == told["outcome"]
        place = asked["names"] and told["outcome"] == "stops"
        yield (
            f"[{name}]({report['url']})",
            "yes" if report["held_out"] else "",
            f"{asked['model']}, {asked['stack']}, {asked['arch']}, tp {asked['tp']}",
            report["stage"],
            f"{told['outcome']} {one_line(told['reason'], 90)}".strip().replace("|", "/"),
            "hit" if hit else "miss",
            ("same" if asked["names"] in stop_words(told) else "another") if place else "",
        )


def stop_words(told: dict[str, Any]) -> str:
    first = told["blockers"][0]
    return f"{told['reason']} {first['message'].partition('https://')[0]}"


def model_rows(kept: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """What is foretold of each model."""
    yield (
        "model, stack and patch level",
        "foretold",
        "layers",
        "pieces",
        "stops, in order (what gets past it)",
    )
    for name, told in kept["models"].items():
        stops = [one for one in told.get("blockers", []) if one["operation"] or one["message"]]
        said = "; ".join(f"{one['operation'] or one_line(one['message'], 60)} ({past(one)})" for one in stops)
        yield (
            name,
            told["outcome"],
            str(told.get("layers") or ""),
            pieces_of(told.get("graphs") or []),
            (said or one_line(told["reason"], 110)).replace("|", "/"),
        )


def past(stop: dict[str, Any]) -> str:
    return f"level {stop['past_level']}" if stop["past_level"] else "no level"


def table(rows: Iterator[tuple[str, ...]]) -> str:
    head, *rest = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|" + " --- |" * (head.count("|") - 1), *rest])


def tables() -> str:
    """All tables, as Markdown."""
    kept = json.loads(KEPT.read_text())
    parts = (
        ("Real captures on one H200", capture_rows),
        ("Public reports", report_rows),
        ("Models", model_rows),
    )
    head = "Made by `benchmarks/forecasts.py tables` from forecasts.json; README.md says how to read them.\n"
    return "\n".join([head, *(f"## {title}\n\n{table(rows(kept))}\n" for title, rows in parts)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = {"captures": capture_questions, "reports": report_questions, "models": model_questions}
    parser.add_argument("parts", nargs="+", choices=[*parts, "tables"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", action="append", help="those whose name has this in it; repeatable")
    asked = parser.parse_args()
    kept = json.loads(KEPT.read_text()) if KEPT.is_file() else {}
    if "tables" in asked.parts:
        TABLES.write_text(tables())
        return
    for part in asked.parts:
        questions = [
            one for one in parts[part]() if not asked.only or any(word in one.name for word in asked.only)
        ]
        with ThreadPoolExecutor(asked.jobs) as pool:
            kept[part] = kept.get(part, {}) | dict(
                tqdm(pool.map(made, questions), total=len(questions), desc=part)
            )
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
