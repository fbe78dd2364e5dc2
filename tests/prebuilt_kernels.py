"""A small package whose kernels are prebuilt, called in fresh processes.

Each step forks a child that pretends another processor, numba or Python. A test reads
what the steps print: their name, whether the kernel was compiled, and what it returned.
"""

import re
import shutil
import sys
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
from numba.core import caching, config, types
from numba.core.registry import cpu_target

from tests.cached_kernels import IMPORTED, PROBE, ROOT, print_from_child
from tests.programs import run

CALLS = """    import numpy as np
    from smoothsp._kernels.probe_cpu import probe
    probe(np.zeros(1), np.zeros(1))"""
V3 = "+avx +avx2 +bmi +bmi2 +cx16 +f16c +fma +lzcnt +movbe +popcnt +sahf +sse4.2"
V3 = [*V3.split(), "+ssse3", "+xsave"]
V4 = [*V3, *(f"+avx512{part}" for part in ("bw", "cd", "dq", "f", "vl"))]


def main(folder: Path) -> None:
    cpu_target.typing_context.refresh()  # most of what a child would import
    package = folder / "smoothsp"
    probe, imported = (package / f"_kernels/{x}.py" for x in ("probe_cpu", "imported"))
    compilation = "smoothsp/_kernels/compilation"
    shutil.copytree(ROOT / compilation, package / "_kernels/compilation")
    for part in (package, package / "_kernels"):
        (part / "__init__.py").touch()
    probe.write_text(PROBE.replace("deep.er.", ""))
    imported.write_text(IMPORTED.format(1))

    def script(name: str, *options: str) -> None:
        text = (ROOT / ".ci/kernels").read_text()
        calls = re.sub('(?s)    """Train and.*?(?=\n\n\ndef)', CALLS, text)
        (folder / ".ci").mkdir(exist_ok=True)
        (folder / ".ci/kernels").write_text(calls)
        command = [sys.executable, folder / ".ci/kernels", *options]
        done = run(*command, check=False, env={"PYTHONPATH": str(folder)})
        sys.stdout.write(f"{name}\t{done.returncode}\n")

    def step(name: str, features: list[str] | None, change: object = id) -> None:
        """Print how often the probe is compiled, what is said, and what 0.5 becomes.

        ``features`` are those of the processor; None: this one, whose code is run.
        """

        def call() -> list[object]:
            config.CACHE_DIR = str(folder / name)
            if features is not None:
                config.CPU_NAME, config.CPU_FEATURES = "nehalem", ",".join(features)
            from smoothsp._kernels import probe_cpu
            from smoothsp._kernels.compilation import prebuilt

            change(prebuilt)
            signature = (types.Array(types.float64, 1, "C"),) * 2
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                probe_cpu.probe.compile(signature)
            compiled = sum(probe_cpu.probe.stats.cache_misses.values())
            out = np.full(1, np.nan)
            if features is None:
                probe_cpu.probe(np.full(1, 0.5), out)
            return [compiled, out[0], *(str(x.message).split(" (")[0] for x in caught)]

        print_from_child(name, package, call)

    script("script check, none built", "check")
    script("script")
    script("script check", "check")
    step("this processor", None)
    step("v4", V4)
    step("v3", V3)
    step("without fma", [x for x in V4 if x != "+fma"])
    step("no features", [])
    step("bounds checks", V4, lambda _: setattr(config, "BOUNDSCHECK", 1))
    step("another numba", V4, lambda _: setattr(numba, "__version__", "0.1"))
    python = SimpleNamespace(
        version_info=SimpleNamespace(major=3, minor=9), abiflags=""
    )
    step("another Python", V4, lambda prebuilt: setattr(prebuilt, "sys", python))
    step("its own", None, lambda prebuilt: setattr(prebuilt, "enabled", False))
    nowhere = partial(setattr, caching.CacheImpl, "_locator_classes", [])
    step("no folder", None, lambda _: nowhere())
    step("no folder, no features", [], lambda _: nowhere())

    found = package / "_kernels/prebuilt"
    (v4,), (v3,) = (list(found.glob(f"*-v{level}/*probe*.nbc")) for level in (4, 3))
    sound = v4.read_bytes(), v3.read_bytes()
    v4.write_bytes(sound[0][:-1] + b"?")
    step("damaged v4", V4)
    v4.write_bytes(sound[0][:-1] + b"?"), v3.write_bytes(sound[1][:-1] + b"?")
    step("damaged", V4)
    v4.write_bytes(sound[1]), v3.write_bytes(sound[1])
    step("code of another level", V4)
    v4.write_bytes(sound[0])
    imported.write_text(IMPORTED.format(2))
    step("edited", None)
    imported.write_text(IMPORTED.format(1))
    step("healed", V4)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
