"""The part of the build that pyproject.toml cannot say: compile the kernels where there is a C++ compiler."""

import importlib.util
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("src/nhwc/kernels/native")


class BuildKernels(build_ext):
    """Puts the libraries beside the package's files; without a compiler the package works, more slowly."""

    def run(self) -> None:
        spec = importlib.util.spec_from_file_location("nhwc_build", NATIVE / "build.py")
        assert spec is not None
        assert spec.loader is not None
        compilation = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(compilation)
        into = NATIVE if self.inplace else Path(self.build_lib) / "nhwc" / "kernels" / "native"
        try:
            compilation.build(into, Path(self.build_temp) / "nhwc")
        except RuntimeError as error:
            sys.stderr.write(f"warning: nhwc is installed without its compiled kernels: {error}\n")

    def get_outputs(self) -> list[str]:
        return [str(path) for path in (Path(self.build_lib) / "nhwc/kernels/native").glob("*.so")]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


setup(
    # named so that setuptools takes the package for one with compiled parts
    ext_modules=[Extension("nhwc.kernels.native.libnhwc", sources=[])],
    cmdclass={"build_ext": BuildKernels},
)
