"""A compiled kernel is loaded only while all that it imports is as it was."""

import errno
import os
import re
import signal
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numba.core import caching, config
from numba.core.codegen import get_host_cpu_features

from smoothsp._kernels.compilation import kernel as compilation
from smoothsp._kernels.compilation import prebuilt
from smoothsp._kernels.compilation.checksummed_files import (
    ChecksummedFiles,
    rename_damaged_file,
)
from smoothsp._kernels.compilation.kernel import kernel
from smoothsp._kernels.compilation.subroutine import subroutine
from smoothsp._kernels.vectors.whole_arrays import scale_rows
from tests import sweeps
from tests.prebuilt_kernels import V3, V4
from tests.programs import ROOT, run


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Of each step the probe's values, then compilations and loads."""
    folder = tmp_path_factory.mktemp("kernels")
    cache = folder / "cache"
    env = {"NUMBA_CACHE_DIR": str(cache), "NUMBA_DISABLE_JIT": "0"}
    done = run(sys.executable, "-m", "tests.cached_kernels", folder, env=env)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    files = {path.parents[1] for path in folder.rglob("*.nbi")}
    return {name: [float(x) for x in rest] for name, *rest in lines}, files, cache


@pytest.mark.parametrize(
    ("step", "expected"),
    {
        "first": [1.5, 1, 0],
        "again": [1.5, 0, 1],
        "another file": [1.5, 0, 1],
        "changed": [2.5, 1, 0],
    }.items(),
)
def test_a_change_in_an_imported_file_is_noticed(found, step, expected):
    assert found[0][step] == expected


def test_what_two_kernels_call_is_compiled_once(found):
    assert found[0]["another kernel"] == [-0.5, 0, 1]


@kernel
def doubled(x, out):
    out[0] = 2 * x[0]


@subroutine
def shifted(x, by):
    return x + by


@kernel
def doubled_and_shifted(x, by, out):
    doubled(x, out)
    out[0] = shifted(shifted(out[0], 1), by)


# compiled in every run, also one whose cache the user has named
for one in (doubled, doubled_and_shifted):
    one._cache = caching.NullCache()


def test_a_kernel_that_a_kernel_calls_is_made_for_python_when_python_calls_it():
    x, out = np.array([3.0]), np.zeros(1)
    doubled_and_shifted(x, 5, out)
    assert out[0] == 12
    assert not doubled.signatures
    assert len(doubled.as_subroutine.dispatcher.signatures) == 1
    doubled(x, out)
    assert out[0] == 6
    assert len(doubled.signatures) == 1


def test_kernels_with_and_without_bounds_checks_are_kept_apart(found):
    assert found[0]["checked"] == [2.5, 1, 0]
    assert found[0]["unchecked"] == found[0]["checked again"] == [2.5, 0, 1]


def test_a_file_with_another_signature_is_compiled_again(found):
    assert found[0]["both"] == [2.5, 2.5, 1, 1]
    assert found[0]["exchanged"] == [2.5, 2.5, 2, 0]
    assert found[0]["healed"] == [2.5, 2.5, 0, 2]


def test_an_index_that_names_what_is_no_more_is_made_anew(found):
    assert found[0]["renamed"] == [2.5, 1, 0]
    assert found[0]["renamed again"] == [2.5, 0, 1]


def test_a_changed_archive_is_noticed(found):
    if "zipped 3" not in found[0]:
        pytest.skip("this numba compiles no file of an archive")
    assert found[0]["zipped 3"] == [3.5, 1, 0]
    assert found[0]["zipped again 3"] == [3.5, 0, 1]
    assert found[0]["zipped 4"] == [4.5, 1, 0]


def test_compiled_kernels_stay_in_the_folder_that_the_user_named(found):
    assert found[1] == {found[2]}


def test_every_kernel_is_kept_this_way():
    for path in (ROOT / "smoothsp").rglob("*.py"):
        plain = re.search(r"njit\([^)]*cache=", path.read_text())
        assert not plain, f"{path}: a kernel is decorated with @kernel"


def test_new_arrays_of_kernels_are_made_in_place():
    for path in (ROOT / "smoothsp/_kernels").rglob("*.py"):
        if path.name != "arrays.py" and "cuda" not in path.parts:
            found = re.search(r"np\.(empty|zeros)\(", path.read_text())
            assert not found, f"{path}: new arrays come from vectors/arrays.py"


def double(x, out):
    out[0] = 2 * x[0]


def hold(compiled):
    out = np.zeros(1)
    compiled(np.ones(1), out)
    assert out[0] == 2


LOADED = """
import sys
from importlib import import_module
from pkgutil import walk_packages

import numpy as np

from smoothsp import _kernels
from smoothsp._kernels.compilation.kernel import Kernel
from smoothsp._kernels.vectors.whole_arrays import scale_rows

scale_rows(0, 0, 0, 0, 0, 0, np.empty(0))
assert "numba.np.linalg" not in sys.modules
count = 0
for found in walk_packages(_kernels.__path__, "smoothsp._kernels."):
    if ".cuda" in found.name:
        continue
    module = import_module(found.name)
    for one in vars(module).values():
        if not isinstance(one, Kernel) or one.py_func.__module__ != found.name:
            continue
        one._cache.enable_cache()
        for key in one._cache._cache_file._load_index():
            if key == one._cache._index_key(key[0], one.targetctx.codegen()):
                one.compile(key[0])
                count += one.stats.cache_hits[key[0]]
        assert not one.stats.cache_misses, one
print(count)
"""


@pytest.mark.long
def test_all_that_is_kept_is_loaded_without_the_compiler():
    """A function that it would have to provide would end the process."""
    scale_rows(0, 0, 0, 0, 0, 0, np.empty(0))
    assert int(run(sys.executable, "-c", LOADED).stdout) >= 1


@pytest.fixture
def compiling(monkeypatch, tmp_path):
    monkeypatch.setattr(config, "DISABLE_JIT", 0)
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))


def test_kernels_work_where_no_folder_can_be_written_to(compiling, monkeypatch):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    compiled = compilation.kernel(double)
    with pytest.warns(UserWarning, match="Set NUMBA_CACHE_DIR to a writable folder"):
        hold(compiled)


def test_kernels_work_where_the_disk_is_full(compiling, monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "_dump", full)
    compiled = compilation.kernel(double)
    with pytest.warns(UserWarning, match=r"cannot be cached \(No space left on device"):
        hold(compiled)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_ctrl_c_waits_until_a_kernel_is_made(compiling):
    """Pressed where numba takes the machine code, it was lost, and numba failed."""
    pressed = []

    def press(frame, event, _):
        if event == "call" and frame.f_code.co_name == "_object_compiled_hook":
            pressed.append(frame)
            signal.raise_signal(signal.SIGINT)

    compiled = compilation.kernel(double)
    before = sys.getprofile()
    with pytest.raises(KeyboardInterrupt):
        try:
            sys.setprofile(press)
            hold(compiled)
        finally:
            sys.setprofile(before)
    assert pressed
    hold(compiled)
    assert sum(compiled.stats.cache_misses.values()) == 1
    again = compilation.kernel(double)
    hold(again)
    assert sum(again.stats.cache_hits.values()) == 1


def cut(content):
    return content[: len(content) // 2]


def flipped(place):
    def flip(content):
        at = int(place * (len(content) - 1))
        return content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :]

    return flip


DAMAGES = [lambda content: b"", cut, *map(flipped, (0.0, 0.05, 0.5, 1.0))]


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_a_damaged_file_is_moved_aside_compiled_again_and_reported_once(
    compiling, tmp_path, suffix
):
    hold(compilation.kernel(double))
    (kept,) = tmp_path.rglob(f"*.{suffix}")
    for damage in DAMAGES if sweeps.long else DAMAGES[1:3]:
        damaged = damage(kept.read_bytes())
        kept.write_bytes(damaged)
        compiled = compilation.kernel(double)
        with pytest.warns(
            UserWarning, match=r"on disk is damaged \(moved to"
        ) as caught:
            hold(compiled)
        assert len(caught) == 1
        assert sum(compiled.stats.cache_misses.values()) == 1
        assert kept.with_name(f"{kept.name}.damaged").read_bytes() == damaged
        compiled = compilation.kernel(double)
        hold(compiled)
        assert sum(compiled.stats.cache_hits.values()) == 1


def files_of_a_kernel(folder):
    """The files of a kernel as one process has them, with one entry."""
    files = ChecksummedFiles(str(folder), "kernel", "sources")
    files.save("key", "code")
    return files


def test_a_sound_file_of_another_process_is_not_moved(tmp_path):
    files, data = files_of_a_kernel(tmp_path), tmp_path / "kernel.1.nbc"
    data.write_bytes(b"damaged")
    damaged = data.stat()
    files_of_a_kernel(tmp_path)
    rename_damaged_file(str(data), damaged)
    assert files.load("key") == "code"


def test_several_processes_heal_one_file_at_once(tmp_path):
    def heal():
        for _ in range(20):
            files = ChecksummedFiles(str(tmp_path), "kernel", "sources")
            if files.load("key") != "code":
                files_of_a_kernel(tmp_path)

    for number in range(20):
        files = files_of_a_kernel(tmp_path)
        for path in tmp_path.glob("*.nb?"):
            path.write_bytes(path.read_bytes()[number:-1])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with ThreadPoolExecutor(8) as pool:
                for done in [pool.submit(heal) for _ in range(8)]:
                    done.result()
        assert files.load("key") == "code"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_damaged_file_in_a_folder_that_cannot_be_written_to_is_passed_over(tmp_path):
    files = files_of_a_kernel(tmp_path)
    (tmp_path / "kernel.1.nbc").write_bytes(b"damaged")
    tmp_path.chmod(0o500)
    try:
        with pytest.warns(UserWarning, match="not moved: Permission denied"):
            assert files.load("key") is None
    finally:
        tmp_path.chmod(0o700)


@pytest.fixture
def prebuilt_folder(compiling, monkeypatch, tmp_path):
    """A kernel compiled here, kept as one of a level that this processor has."""
    monkeypatch.setattr(prebuilt, "FOLDER", str(tmp_path / "prebuilt"))
    monkeypatch.setattr(prebuilt, "supported_levels", lambda _: ["x86-64-v3"])
    compiled = compilation.kernel(double)
    hold(compiled)
    ((types, code),) = compiled.overloads.items()
    key = compiled._cache._index_key(types, code.codegen)
    of_level = (key[0], (key[1][0], "x86-64-v3", ""), *key[2:])
    prebuilt.save(double, of_level, compiled._cache._impl.reduce(code))
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "empty"))


def test_kernels_of_the_package_are_loaded_where_the_users_folder_has_none(
    prebuilt_folder, monkeypatch, tmp_path
):
    compiled = compilation.kernel(double)
    hold(compiled)
    assert sum(compiled.stats.cache_hits.values()) == 1
    assert not list((tmp_path / "empty").rglob("*.nbc"))
    monkeypatch.setattr(prebuilt, "enabled", False)
    compiled = compilation.kernel(double)
    hold(compiled)
    assert sum(compiled.stats.cache_misses.values()) == 1
    assert list((tmp_path / "empty").rglob("*.nbc"))


def test_kernels_of_the_package_need_no_folder(prebuilt_folder, monkeypatch):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    compiled = compilation.kernel(double)
    hold(compiled)
    assert sum(compiled.stats.cache_hits.values()) == 1


@pytest.mark.parametrize(
    ("features", "levels"),
    {
        "+a,+avx512f": [],
        ",".join(V3): ["x86-64-v3"],
        ",".join([*V3[1:], "-avx"]): [],
        ",".join([*V4, "+amx"]): ["x86-64-v4", "x86-64-v3"],
        ",".join([*V4[:-1], "-avx512vl"]): ["x86-64-v3"],
    }.items(),
)
def test_a_processor_has_the_levels_of_which_it_has_all_features(features, levels):
    assert prebuilt.supported_levels(features) == levels


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prebuilt")
    env = {"NUMBA_DISABLE_JIT": "0", "NUMBA_BOUNDSCHECK": "0"}
    done = run(sys.executable, "-m", "tests.prebuilt_kernels", folder, env=env)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    return {name: rest for name, *rest in lines}


DAMAGED = "smoothsp: a compiled kernel on disk is damaged"


@pytest.mark.long
@pytest.mark.parametrize(
    ("step", "found"),
    {
        "script check": ["0"],
        "this processor": ["0", "1.5"],
        "v4": ["0", "nan"],
        "v3": ["0", "nan"],
        "without fma": ["1", "nan"],
        "no features": ["1", "nan"],
        "bounds checks": ["1", "nan"],
        "another numba": ["1", "nan"],
        "another Python": ["1", "nan"],
        "its own": ["1", "1.5"],
        "no folder": ["0", "1.5"],
        "no folder, no features": [
            "1",
            "nan",
            "smoothsp: compiled kernels cannot be cached",
        ],
        "damaged v4": ["0", "nan", DAMAGED],
        "damaged": ["1", "nan", DAMAGED, DAMAGED],
        "code of another level": ["0", "nan"],
        "edited": ["1", "2.5"],
        "healed": ["0", "nan"],
    }.items(),
)
def test_kernels_of_the_package_are_loaded_where_they_are_right(steps, step, found):
    if not prebuilt.supported_levels(get_host_cpu_features()):
        pytest.skip("needs a processor with AVX2")
    assert steps[step] == found


@pytest.mark.long
def test_a_release_without_kernels_is_refused(steps):
    assert steps["script check, none built"] == ["1"]
