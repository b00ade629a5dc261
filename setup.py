"""Puts conf/ into the wheel as composer_rl/conf; everything else is in pyproject.toml."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithConf(build_py):
    """The ordinary build, then every YAML of conf/; links to experiments/ and multirun_sweeps/ become folders."""

    def run(self) -> None:
        """Build. An editable install reads conf/ of the checkout instead."""
        super().run()
        if self.editable_mode:
            return
        for source, target in self._conf_files():
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """The files that end up in the wheel."""
        return [*super().get_outputs(include_bytecode), *(str(target) for _, target in self._conf_files())]

    def _conf_files(self) -> list[tuple[Path, Path]]:
        folder = ROOT / "conf"
        goal = Path(self.build_lib) / "composer_rl" / "conf"
        return [(file, goal / file.relative_to(folder)) for file in sorted(_yaml_files(folder))]


def _yaml_files(folder: Path) -> list[Path]:
    found: list[Path] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _yaml_files(entry)
        elif entry.suffix == ".yaml":
            found.append(entry)
    return found


setup(cmdclass={"build_py": BuildWithConf})
