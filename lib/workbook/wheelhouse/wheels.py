"""Wheels of another Python than this one: fetched by pip into a cache, and what they require."""

import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import default_environment
from packaging.metadata import parse_email
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from workbook.errors import WorkbookError
from workbook.node.base import NodeConnection
from workbook.node.pip import run_logged

GLIBC_MINOR = 35  # glibc 2.35 and up: Ubuntu 22.04, Debian 12, RHEL 10
LEGACY = ("manylinux2014", "manylinux2010", "manylinux1", "linux")
MANYLINUX = [f"manylinux_2_{minor}" for minor in range(GLIBC_MINOR, 4, -1)]
PLATFORMS = [f"--platform={name}_x86_64" for name in (*MANYLINUX, *LEGACY)]


@dataclass(frozen=True)
class Target:
    """The node's Python, such as 3.12, on Linux x86-64."""

    python: str

    @property
    def environment(self) -> dict[str, str]:
        """Values of the markers of a requirement on the node."""
        known = {name: str(value) for name, value in default_environment().items()}
        return known | {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": "x86_64",
            "platform_python_implementation": "CPython",
            "platform_system": "Linux",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
        }

    @property
    def pip_options(self) -> list[str]:
        """What makes pip choose wheels for it."""
        return ["--only-binary=:all:", "--implementation=cp", f"--python-version={self.python}", *PLATFORMS]


class WheelCache:
    """A folder of wheels of one target; a wheel in it is whole. One process at a time fetches to it.

    Args:
        node: whose pip fetches.
        folder: where the wheels are kept.
        log: where pip's output goes; beside the wheels by default.
        on_package: called with a line for each package that pip turns to.
    """

    def __init__(
        self,
        node: NodeConnection,
        target: Target,
        folder: Path,
        log: Path | None = None,
        on_package: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._node, self._target, self._folder = node, target, folder
        self._log, self._on_package = log or folder / "download.log", on_package

    def fetch(self, name: str, version: Version) -> Path:
        """The wheel of a package, fetched unless it is here.

        Raises:
            UsageError: pip finds no such version as a wheel for this target.
            WorkbookError: pip failed.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        if wheel := self._find(self._folder, name, version):
            return wheel
        partial = self._folder / ".partial"
        shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
        argv = [self._node.python, "-I", "-m", "pip", "download", "--no-deps", "--no-input", "--no-cache-dir"]
        argv += [*self._target.pip_options, "--progress-bar=off", f"--dest={partial}", f"{name}=={version}"]
        env = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "TMPDIR": str(partial)}  # on the disk that was looked at
        partial.mkdir()
        try:
            run_logged(self._node, argv, self._log, env, self._on_package)
            fetched = self._find(partial, name, version)
            if fetched is None:
                raise WorkbookError(f"pip fetched no wheel of {name} {version}.")
            return fetched.rename(self._folder / fetched.name)
        finally:
            shutil.rmtree(partial)

    @staticmethod
    def _find(folder: Path, name: str, version: Version) -> Path | None:
        for path in folder.glob("*.whl"):
            if parse_wheel_filename(path.name)[:2] == (canonicalize_name(name), version):
                return path
        return None


def requires(wheel: Path) -> list[Requirement]:
    """What a wheel's metadata requires, extras and markers included."""
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(
            n for n in archive.namelist() if n.endswith(".dist-info/METADATA") and n.count("/") == 1
        )
        raw, _unknown = parse_email(archive.read(metadata))
    return [Requirement(line) for line in raw.get("requires_dist", [])]
