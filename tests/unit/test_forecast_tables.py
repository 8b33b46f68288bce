"""The tables that hold forecasts against the truth are made from what is kept, and from nothing else."""

import json
import re
import runpy

import yaml

from workbook import recorded
from workbook.paths import DATA, ROOT
from workbook.serving import model_configs

FORESEE = DATA / "foresee"
KEPT = json.loads((FORESEE / "forecasts.json").read_text())


def records(name: str) -> list[dict[str, object]]:
    found = yaml.safe_load((FORESEE / name).read_text())
    assert isinstance(found, list) and found
    return found


def test_the_tables_are_those_of_the_kept_forecasts() -> None:
    made = runpy.run_path(str(ROOT / "benchmarks" / "forecasts.py"))["tables"]()
    assert (FORESEE / "tables.md").read_text() == made


def test_what_is_asked_again_was_reported() -> None:
    reported = {one["id"]: one for one in records("reports.yaml")}
    asked = records("replays.yaml")
    assert {one["report"] for one in asked} <= reported.keys()
    assert len({one["report"] for one in asked}) == len(asked) == len(KEPT["reports"])
    assert sum(bool(reported[one["report"]]["held_out"]) for one in asked) >= 8


def test_every_model_asked_is_in_the_catalogue() -> None:
    asked = [str(one["model"]) for one in records("replays.yaml")]
    asked += [name.partition(" on ")[0] for name in KEPT["models"]]
    assert all(model_configs.find(name) for name in asked)


def test_every_piecewise_capture_was_foretold() -> None:
    assert KEPT["captures"].keys() == {one.name for one in recorded.captures() if one.mode == "piecewise"}


def test_pieces_were_foretold_right_wherever_a_capture_traced() -> None:
    real = {one.name: one for one in recorded.captures()}
    compared = [
        (told["graphs"][0]["pieces"], real[name].graphs[0].pieces)
        for name, told in KEPT["captures"].items()
        if told.get("graphs") and real[name].graphs
    ]
    assert len(compared) > 15 and all(told == counted for told, counted in compared)


def test_no_path_of_a_machine_is_kept() -> None:
    text = (FORESEE / "forecasts.json").read_text()
    assert ".py" in text and not re.search(r'["\s]/[\w.-]+/[\w./-]+\.py', text)
