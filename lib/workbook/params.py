"""The parameters of each notebook, strictly checked before anything starts: `p = PiecewiseParams.bind(globals())`.

papermill only warns at a misspelt name and passes wrong types on; these models stop with one sentence instead.
"""

import ast
import itertools
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from workbook import catalog
from workbook.boundary.entries import check_arch, entry
from workbook.boundary.levels import LEVELS
from workbook.errors import ParameterError, UsageError, nearest
from workbook.store import BENCH, MATRIX
from workbook.types import CaptureMode, LaunchProfile, Node, Record, Stack

_PARAMETER_CELL = re.compile(r"\s*#\s*parameters\b", re.IGNORECASE)


def _checked(check: Callable[[str], object]) -> AfterValidator:
    """A string that `check` takes without a UsageError; its sentence becomes the parameter's."""

    def validate(value: str) -> str:
        try:
            check(value)
        except UsageError as error:
            raise ValueError(str(error)) from error
        return value

    return AfterValidator(validate)


def _known(kind: type[Record]) -> AfterValidator:
    """A name that data/ has a description for."""
    return _checked(lambda name: catalog.load(kind, name))


def _known_or_empty(kind: type[Record]) -> AfterValidator:
    """The same, or nothing."""
    return _checked(lambda name: name == "" or catalog.load(kind, name))


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise UsageError(
            "up to 64 letters, digits, dots, dashes and underscores are allowed, a letter or digit first."
        )


def _check_campaign(name: str) -> None:
    _check_name(name)
    if name in (BENCH, MATRIX):
        raise UsageError("runs of `workbook bench` and `workbook matrix` are kept there; take another name.")


def _capture_mode(value: Any) -> Any:
    if isinstance(value, str) and value not in list(CaptureMode):
        near = get_close_matches(value, list(CaptureMode), n=1)
        raise ValueError(f"{f'did you mean {near[0]}? ' if near else ''}Allowed: {', '.join(CaptureMode)}.")
    return CaptureMode(value) if isinstance(value, str) else value


def _int_list(value: Any) -> Any:
    """`"1,4,16"`, a single number or a list: papermill hands over whichever was written."""
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",") if part.strip()]
        return [int(part) if re.fullmatch(r"\d{1,9}", part, re.ASCII) else part for part in parts]
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


def _distinct(values: list[int]) -> list[int]:
    return list(dict.fromkeys(values))


Name = Annotated[str, _checked(_check_name)]
CampaignName = Annotated[str, _checked(_check_campaign)]
NodeName = Annotated[str, _known(Node)]
ProfileName = Annotated[str, _known(LaunchProfile)]
StackName = Annotated[str, _known(Stack)]
ProfileNameOrNone = Annotated[str, _known_or_empty(LaunchProfile)]
StackNameOrNone = Annotated[str, _known_or_empty(Stack)]
EntryPath = Annotated[str, _checked(entry)]
ArchName = Annotated[str, _checked(check_arch)]
TOP = len(LEVELS) - 1
Level = Annotated[int, Field(ge=0, le=TOP)]
LevelList = Annotated[
    list[Level],
    BeforeValidator(_int_list),
    AfterValidator(_distinct),
    Field(min_length=1, description=f"integers from 0 to {TOP}, comma-separated, are allowed."),
]
ConcurrencyList = Annotated[
    list[Annotated[int, Field(ge=1, le=65536)]],
    BeforeValidator(_int_list),
    AfterValidator(_distinct),
    Field(description="integers from 1 to 65536, comma-separated, are allowed."),
]


Mode = Annotated[CaptureMode, BeforeValidator(_capture_mode)]


class Params(BaseModel):
    """What all notebooks take. `campaign` is the folder that the run goes to."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    notebook: ClassVar[str]

    campaign: CampaignName
    node: NodeName
    label: Name

    @classmethod
    def bind(cls, namespace: Mapping[str, Any]) -> Self:
        """The checked parameters of the notebook whose globals these are.

        The names are those assigned in its parameters cell and in the cell that papermill injects; both begin with
        the comment `# Parameters`. In a namespace without cells (a script), the model's own fields are looked up.

        Raises:
            ParameterError: a name is misspelt, a type is wrong or a value out of range; one sentence says which.
        """
        names = _assigned(namespace["In"]) if "In" in namespace else set(cls.model_fields)
        return cls.check({name: namespace[name] for name in names if name in namespace})

    @classmethod
    def check(cls, values: Mapping[str, Any]) -> Self:
        """The checked parameters from a mapping. Raises as `bind` does."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise ParameterError(cls._sentence(error)) from None

    @classmethod
    def _sentence(cls, error: ValidationError) -> str:
        problems = error.errors(include_url=False)
        # A misspelt name also leaves a field missing; the misspelling is what the user needs to hear.
        first = min(problems, key=lambda one: one["type"] != "extra_forbidden")
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            hint = nearest(name, cls.model_fields, f"its parameters are {', '.join(cls.model_fields)}.")
            return f"{name} is not a parameter of {cls.notebook}; {hint}"
        if first["type"] == "missing":
            return f"{name} is missing from the parameters of {cls.notebook}."
        value = reprlib.repr(first["input"])
        return f"{name} = {value} will not do: {_rule(cls, name, first['msg'])}"


def _rule(model: type[Params], name: str, message: str) -> str:
    """What the field says is allowed, its range where it has one, else pydantic's words."""
    if described := model.model_fields[name].description:
        return described
    bounds = {
        key: getattr(one, key)
        for one in model.model_fields[name].metadata
        for key in ("ge", "le")
        if hasattr(one, key)
    }
    if {"ge", "le"} <= bounds.keys():
        return f"an integer from {bounds['ge']} to {bounds['le']} is allowed."
    if "ge" in bounds:
        return f"an integer of {bounds['ge']} or more is allowed."
    message = message.removeprefix("Value error, ").removeprefix("Input ").rstrip(".")
    return f"{message}." if not message.endswith("?") else message


def _assigned(cells: list[str]) -> set[str]:
    """The names assigned in the newest run of cells that begin with the comment `# Parameters`.

    Older ones do not count: in JupyterLab the cell is mended and run again.
    """
    newest_first = itertools.dropwhile(lambda cell: not is_parameters(cell), reversed(cells))
    return {
        name for cell in itertools.takewhile(is_parameters, newest_first) for name, _ in assignments(cell)
    }


def is_parameters(cell: str) -> bool:
    """Whether a cell's source begins with the comment `# Parameters`."""
    return _PARAMETER_CELL.match(cell) is not None


def assignments(cell: str) -> Iterator[tuple[str, ast.expr]]:
    """The names that a cell assigns, each with the expression."""
    for statement in ast.parse(cell).body:
        if isinstance(statement, ast.Assign):
            yield from ((one.id, statement.value) for one in statement.targets if isinstance(one, ast.Name))
        elif (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.value is not None
        ):
            yield statement.target.id, statement.value


class SweepParams(Params):
    """What is measured of a server.

    Args:
        concurrencies: requests in flight; empty for the profile's own.
        repeats: of each point at most; a point ends earlier once its 95 % interval is within 3 %.
        budget_s: seconds after which no further point is begun; 0 for as long as it takes.
        seed: of the first repeat's prompts.
    """

    concurrencies: ConcurrencyList
    repeats: Annotated[int, Field(ge=1, le=100)]
    budget_s: Annotated[int, Field(ge=0, le=7 * 86400)]
    seed: Annotated[int, Field(ge=0, le=2**31)]  # numpy, which the benchmark seeds, takes 32 bits


class BaselineParams(SweepParams):
    """00_baseline: a server and its benchmark. A CPU has no graphs: there `capture_mode` is eager whatever is asked."""

    notebook: ClassVar[str] = "00_baseline"
    profile: ProfileName
    capture_mode: Mode


class CrashParams(Params):
    """01_dynamo_crash: the crash itself, level 0."""

    notebook: ClassVar[str] = "01_dynamo_crash"
    stack: StackName
    entry: EntryPath
    arch: ArchName


class PatchesParams(Params):
    """02_flashinfer_patches: the levels, cold and warm."""

    notebook: ClassVar[str] = "02_flashinfer_patches"
    stack: StackName
    entry: EntryPath
    arch: ArchName
    levels: LevelList


class PiecewiseParams(SweepParams):
    """03_piecewise: capture at one patch level, and a server that captures so against one in `baseline_mode`.

    Args:
        tp: tensor-parallel size; 0 for the profile's own.
        prompts: asked of both servers for the accuracy gate.
        foresee_profile: whose capture is foretold; empty for `profile` where that runs on GPUs, else the case's.
        foresee_stack: whose SGLang it is foretold for; empty for `stack` where that can be foretold, else seed.
    """

    notebook: ClassVar[str] = "03_piecewise"
    stack: StackName
    profile: ProfileName
    arch: ArchName
    patch_level: Level
    tp: Annotated[int, Field(ge=0, le=1024)]
    capture_mode: Mode
    baseline_mode: Mode
    prompts: Annotated[int, Field(ge=1, le=4096)]
    foresee_profile: ProfileNameOrNone
    foresee_stack: StackNameOrNone


class ReportParams(Params):
    """04_report: the records of one campaign. An empty `runs` means the newest sealed run of every notebook."""

    notebook: ClassVar[str] = "04_report"
    runs: str
