"""The core built with AddressSanitizer and UndefinedBehaviorSanitizer, and what runs on it.

    python -m tests.core.sanitized build/san python -m tests.executor.random_instructions --count 2000
    python -m tests.core.sanitized build/san python -m pytest -q tests/core/test_scatter.py

The first argument is the folder of the build, which takes minutes once; the others are a command,
which runs once on each instruction set of the processor, or on NEURONSIM_ISA alone, with GCC's
sanitizers loaded before Python. The first access outside of memory, or undefined step, ends it, and
this ends with 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "neuronsim"
# GCC's; libstdc++ beside them, whose throw they replace.
LIBRARIES = ("libasan.so", "libubsan.so", "libstdc++.so")


def build(folder: Path) -> Path:
    """Build the core, and give a folder to import the package from, with that core in it."""
    pybind11 = subprocess.run(
        [sys.executable, "-m", "pybind11", "--cmakedir"], check=True, capture_output=True, text=True
    )
    cmake = ["cmake", "-S", ROOT, "-B", folder, "-DNEURONSIM_SANITIZE=ON"]
    cmake += [f"-Dpybind11_DIR={pybind11.stdout.strip()}", f"-DPython_EXECUTABLE={sys.executable}"]
    gcc = os.environ | {"CXX": "g++"}
    subprocess.run([*cmake, "-DCMAKE_BUILD_TYPE=Release"], check=True, stdout=sys.stderr, env=gcc)
    subprocess.run(["cmake", "--build", folder, "--parallel"], check=True, stdout=sys.stderr)
    (core,) = folder.glob("_core*.so")
    package = folder / "python" / "neuronsim"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("_core*.so", "__pycache__"))
    shutil.copy(core, package / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}")
    return package.parent


def environment(package: Path, isa: str) -> dict[str, str]:
    """What a command on the sanitized core runs with."""
    named = [
        subprocess.run(["g++", f"-print-file-name={n}"], check=True, capture_output=True, text=True)
        for n in LIBRARIES
    ]
    return os.environ | {
        "LD_PRELOAD": ":".join(n.stdout.strip() for n in named),
        # Python never frees some of its memory, and address limits of tests count the shadow memory.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONPATH": str(package),
        "NEURONSIM_ISA": isa,
        "NEURONSIM_TEST_SLOWNESS": "10",
    }


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__)
        return 2
    package = build(Path(sys.argv[1]).resolve())
    if "NEURONSIM_ISA" in os.environ:
        isas = [os.environ["NEURONSIM_ISA"]]
    else:
        from neuronsim import processor

        isas = list(processor.available_isas())
    failed = 0
    for isa in isas:
        print(f"== {isa}", flush=True)
        failed |= subprocess.run(sys.argv[2:], env=environment(package, isa), cwd=ROOT).returncode
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
