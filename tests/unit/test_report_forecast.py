"""A forecast is told as it is: the answer first, what it rests on, and a hit only where a server bore it out."""

import pytest

from tests.unit.report_samples import HOSTILE, forecast, frame, model_stop
from workbook.commands.foresee import lines
from workbook.report import forecast as show
from workbook.report.forecast_check import check
from workbook.report.forecast_words import facts, sentence
from workbook.types import (
    CaptureMode,
    CaptureStep,
    Foretold,
    Lane,
    Measurement,
    ServeOutcome,
    Status,
)

INDEXER = model_stop(
    order=2, operation="a branch on data: u0 <= 2048", layer="model.layers.0.attn", past_level=5
)
BEYOND = model_stop(order=2, passed="not passed", past="no remedy", past_level=None)
NO_LEVEL = model_stop(order=2, past="a remedy", past_level=None)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (forecast(), "glm5-nvfp4-tp8 at patch level 0 (unpatched) on SGLang 0.5.9 traces to its end: "
         "the first 4 of 78 layers, 9 pieces."),
        (forecast(model_stop()), "stops at _thread.allocate_lock (model.layers.0.mlp); patch level 4 (custom-op) gets "
         "past it, and a few layers of each kind then trace."),
        (forecast(model_stop(), INDEXER), "patch level 5 (nsa-indexer) gets past both stops"),
        (forecast(model_stop(), NO_LEVEL), "of 2 stops, no patch level gets past 1."),
        (forecast(model_stop(), BEYOND).model_copy(update={"blockers": (model_stop(), BEYOND)}),
         "2 stops were found, and what comes after the last is not known."),
        (forecast(outcome=Foretold.SWITCHED_OFF, reason="it says so."),
         "SGLang 0.5.9 switches piecewise capture of glm5-nvfp4-tp8 off: it says so."),
        (forecast(outcome=Foretold.CANNOT_TELL, reason="a stand-in"), "Cannot tell whether glm5-nvfp4-tp8 at patch "
         "level 0 (unpatched) on SGLang 0.5.9 traces: a stand-in."),
    ],
)  # fmt: skip
def test_the_answer_in_a_sentence(found, said):
    assert said in sentence(found)
    assert next(lines(found)) == sentence(found)


def test_a_torch_that_is_not_the_stacks_is_said():
    assert "torch is not the stack's 2.9.1" in facts(forecast())["versions"]
    same = forecast(versions={"torch": "2.9.1+cpu", "sglang": "0.5.9"})
    assert "torch is not" not in facts(same)["versions"]


def test_what_few_layers_take_is_not_told_of_the_whole_model():
    assert facts(forecast(weights_gib=1.5))["weights"] == "1.50 GiB on this rank of the layers traced"
    assert facts(forecast(weights_gib=1.5, layers=78))["weights"] == "1.50 GiB on this rank"


def test_the_lines_have_the_chain_in_lanes_and_what_was_stood_in_for():
    said = list(lines(forecast(model_stop(), INDEXER)))
    chain = [line for line in said if line.startswith("     flashinfer       flashinfer/")]
    assert len(chain) == 2 * 6 and not any("torch/_dynamo" in line for line in said)
    assert any(line.startswith("   past it: patch level 4") for line in said)
    assert said[-1] == "stood in for   weights: none"


def test_hostile_text_neither_acts_nor_breaks_a_line():
    stop = model_stop(
        operation=HOSTILE, layer=HOSTILE, blamed=HOSTILE, past=f"{HOSTILE}\nnext", message=HOSTILE,
        frames=(frame(Lane.SGLANG, HOSTILE, HOSTILE, 1),),
    )  # fmt: skip
    found = forecast(
        stop,
        reason=HOSTILE,
        model=HOSTILE,
        switches=(HOSTILE,),
        stand_ins=(HOSTILE,),
        chosen={HOSTILE: HOSTILE},
    )
    for line in lines(found):
        assert "\n" not in line and "\x1b" not in line and "\u202e" not in line
    for part in (
        show.summary(found),
        show.blockers(found),
        show.stood_in(found),
        show.beside(found, Measurement()),
    ):
        page = part._repr_html_()
        assert "<script>alert" not in page and '" onmouseover="' not in page and "\x1b" not in page


def measured(captured=False, **changes):
    serve = {
        "profile": "glm5-nvfp4-tp8", "label": "piecewise", "status": Status.OK, "command": "x", "ready_s": 9.0,
        "capture_mode": CaptureMode.PIECEWISE, "sglang": "0.5.9",
    }  # fmt: skip
    step = CaptureStep(label="piecewise", rank=0, phase="compile", num_tokens=4, start_s=0, duration_s=1)
    decode = step.model_copy(update={"phase": "decode"})
    return Measurement(
        serves=(ServeOutcome.model_validate(serve | changes),),
        steps=(decode, step) if captured else (decode,),
    )


DIED = {"ready_s": None, "status": Status.DYNAMO_UNSUPPORTED, "decisive_line": "Unsupported: x"}
NO_MEMORY = {"ready_s": None, "status": Status.OOM, "reason": "no memory"}
TRACES, STOPS = forecast(), forecast(model_stop())
OFF, CANNOT = (
    forecast(outcome=Foretold.SWITCHED_OFF, reason="r"),
    forecast(outcome=Foretold.CANNOT_TELL, reason="r"),
)


@pytest.mark.parametrize(
    ("found", "real", "hit"),
    [
        (TRACES, measured(captured=True), True),
        (TRACES, measured(), False),
        (TRACES, measured(**DIED), False),
        (TRACES, measured(**NO_MEMORY), None),
        (STOPS, measured(**DIED), True),
        (STOPS, measured(captured=True), False),
        (STOPS, measured(**NO_MEMORY), None),
        (OFF, measured(), True),
        (OFF, measured(captured=True), False),
        (CANNOT, measured(captured=True), None),
        (CANNOT, measured(**DIED), None),
    ],
)
def test_a_hit_is_what_a_server_bore_out(found, real, hit):
    checked = check(found, real)
    assert checked.hit is hit
    assert checked.word in show.beside(found, real)._repr_html_()


@pytest.mark.parametrize(
    "other",
    [{"profile": "another"}, {"patch_level": 4}, {"sglang": "0.5.12"}, {"capture_mode": CaptureMode.DECODE_GRAPHS},
     {"capture_mode": None}],
)  # fmt: skip
def test_another_launch_says_nothing_of_the_forecast(other):
    assert check(forecast(), measured(captured=True, **other)) is None
    assert "stands alone" in show.beside(forecast(), measured(**other))._repr_html_()


def test_the_table_of_stops_has_a_chain_for_each():
    page = show.blockers(forecast(model_stop(), INDEXER))._repr_html_()
    assert page.count("<figure") == 2 and "u0 &lt;= 2048" in page
    assert "Nothing that was traced is in the way" in show.blockers(forecast())._repr_html_()
