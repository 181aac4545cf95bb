"""A cubin in its target's own schedule: launched as it says where its condition holds; for other
arguments the cubin of the common schedule serves, loaded, and if need be compiled, when it is first
needed.
"""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.bundles import TARGETS, signatures, write_bundle
from helpers.fake_driver import Finished, run_with_fake_driver
from helpers.launches import PRELUDE, run_sample
from helpers.sample_kernels import strided
from helpers.stub_compiler import compilations
from tilewright.abi.arguments import AbiParameter, LaunchAbi, TensorMapSpec
from tilewright.abi.dtypes import float32, int64
from tilewright.runtime.cache import UserCache
from tilewright.runtime.cache_file import read_cached

OWN = LaunchAbi(
    entry="strided",
    parameters=(
        AbiParameter("pointer", "out", float32),
        AbiParameter(
            "tensor_map",
            "map0",
            tensor_map=TensorMapSpec(
                "x", float32, ("grid1", "row_stride"), ("2 * row_stride", "1"), (8, 32), 128
            ),
        ),
        AbiParameter("grid", "grid0"),
        AbiParameter("grid", "grid1", axis=1),
        AbiParameter("grid", "grid2", axis=2),
    ),
    num_threads=384,
    shared_bytes=100_000,
    grid_kind="persistent",
    tma_ok="x % 16 == 0 and row_stride > 0 and row_stride % 4 == 0 and grid1 > 0",
    writes=("out",),
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    wanted = signatures(
        strided, x=(float32,), out=(float32,), row_stride=int64, column_stride=int64, BLOCK=64
    )
    write_bundle(folder, {strided: wanted}, own={"strided": OWN})
    return folder


def run(bundle: Path, folder: Path, program: str, *, fails: str = "") -> Finished:
    return run_sample(
        "x, out = arrays(2, size=4096)\n" + program,
        folder,
        TILEWRIGHT_BUNDLE_PATH=str(bundle),
        FAKE_CUDA_FAIL_LOAD=fails,
    )


def loads(done: Finished) -> list[str]:
    return [line.split()[1] for line in done.lines("cuLibraryLoadData")]


def blocks(done: Finished) -> list[str]:
    """Return grid and threads of each launch."""
    return [" ".join(line.split()[2:4]) for line in done.lines("launch")]


def test_each_blob_is_launched_by_its_own_abi(bundle: Path, tmp_path: Path) -> None:
    program = """
strided[(9, 20, 3)](x, out, 32, 1, BLOCK=64)
print(x.address, out.address)
"""
    done = run(bundle, tmp_path, program)
    assert loads(done) == ["sm_90a+tma"]
    (line,) = done.lines("launch")
    assert "grid=264,1,1 block=384 shared=100000" in line  # two thread blocks are resident
    packed = bytes.fromhex(line.partition("packed=")[2])
    address, out = map(int, done.output.split())
    assert struct.unpack("<Q", packed[:8]) == (out,)
    assert struct.unpack("<Q", packed[128:136]) == (address,)
    assert struct.unpack("<3q", packed[256:]) == (9, 20, 3)
    assert done.lines("encode") == [
        "encode type=7 rank=2 swizzle=3 sizes=32/32/256,20/8/0,",
    ]


def test_an_axis_of_one_element_may_have_any_stride(bundle: Path, tmp_path: Path) -> None:
    done = run(
        bundle,
        tmp_path,
        "strided[2](x, out, 32, 1, BLOCK=64)\nstrided[2](x, out, 16, 1, BLOCK=64)\n",
    )
    assert done.lines("encode") == [
        "encode type=7 rank=2 swizzle=3 sizes=32/32/128,1/8/0,",
        "encode type=7 rank=2 swizzle=3 sizes=16/32/64,1/8/0,",
    ]


def test_arguments_that_it_does_not_take_get_the_common_cubin(bundle: Path, tmp_path: Path) -> None:
    program = """
for _ in range(2):
    strided[(9, 2)](x, out, 0, 1, BLOCK=64)     # an empty tensor has no map
    strided[(9, 2)](x, out, 16, 1, BLOCK=64)
    strided[(9, 2)](x[1:], out, 12, 1, BLOCK=64)  # another signature
    strided[(9, 2)](x, out, 11, 1, BLOCK=64)
    strided[(9, 2)](x, out, 12, 1, BLOCK=64)
print(*launch.resolved(), sep="\\n")
"""
    done = run(bundle, tmp_path, program)
    common, own = "grid=9,2,1 block=128", "grid=18,1,1 block=384"
    assert blocks(done) == [common, own, common, common, own] * 2
    # Of each signature both cubins, each once.
    assert sorted(loads(done)) == ["sm_90a", "sm_90a", "sm_90a+tma", "sm_90a+tma"]
    assert len([line for line in done.output.splitlines() if "sm_90a on device" in line]) == 2


def test_a_refused_common_cubin_leads_to_the_text(bundle: Path, tmp_path: Path) -> None:
    done = run(
        bundle,
        tmp_path,
        "strided[3](x, out, 16, 1, BLOCK=64)\nstrided[3](x, out, 0, 1, BLOCK=64)\n",
        fails="sm_90a =209",
    )
    assert loads(done) == ["sm_90a+tma", "sm_90a", "ptx"]
    assert len(done.lines("launch")) == 2


def test_without_a_second_choice_the_condition_is_told(tmp_path: Path) -> None:
    wanted = signatures(
        strided, x=(float32,), out=(float32,), row_stride=int64, column_stride=int64, BLOCK=64
    )
    folder = tmp_path / "bundle"
    others = [target for target in TARGETS if target not in ("sm_90a", "ptx")]
    write_bundle(folder, {strided: wanted}, targets=others, own={"strided": OWN})
    program = """
strided[3](x, out, 16, 1, BLOCK=64)
refused(errors.ResolveError, lambda: strided[3](x, out, 0, 1, BLOCK=64))
strided[3](x, out, 32, 1, BLOCK=64)
"""
    done = run(folder, tmp_path, program)
    assert "no other binary of kernel" in done.output
    assert f"such that {OWN.tma_ok} does not take these arguments" in done.output
    assert len(done.lines("launch")) == 2


def test_a_capture_does_not_load_the_second_choice(bundle: Path, tmp_path: Path) -> None:
    # The fake driver takes streams with an odd handle for captured ones.
    program = """
strided[3](x, out, 16, 1, BLOCK=64)
refused(errors.LaunchError, lambda: strided[3](x, out, 0, 1, BLOCK=64, stream=7))
"""
    done = run(bundle, tmp_path, program)
    assert "needs another binary for these arguments" in done.output
    assert loads(done) == ["sm_90a+tma"]


def run_unbundled(
    folder: Path, program: str, *, bundle: Path | None = None, **environment: str
) -> Finished:
    """Run with a compiler that has an own schedule for each kernel, and no bundle unless given."""
    if bundle is None:
        bundle = folder / "bundle"
        write_bundle(bundle, {})
    setup = f"""
from pathlib import Path
from helpers import stub_compiler
from tilewright.abi.arguments import LaunchAbi
own = LaunchAbi.from_json({OWN.to_json()!r})
stub_compiler.install(Path({str(folder)!r}), own=own)
x, out = arrays(2, size=4096)
"""
    settings = {"TILEWRIGHT_BUNDLE_PATH": str(bundle), "TILEWRIGHT_JIT": "on"} | environment
    return run_with_fake_driver(PRELUDE + setup + program, folder, has_library_api=True, **settings)


def compiled_texts(folder: Path) -> list[str]:
    return [line.split()[2] for line in compilations(folder)]


_BOTH = """
for _ in range(2):
    strided[3](x, out, 16, 1, BLOCK=64)
    strided[3](x, out, 0, 1, BLOCK=64)
"""


def test_only_what_a_launch_waits_for_is_compiled(tmp_path: Path) -> None:
    done = run_unbundled(tmp_path, "strided[3](x, out, 16, 1, BLOCK=64)")
    assert loads(done) == ["sm_90a+tma"]
    assert compiled_texts(tmp_path) == ["first"]
    # Another process takes it from the cache, and puts the other one beside it.
    own, common = "grid=3,1,1 block=384", "grid=3,1,1 block=128"
    done = run_unbundled(tmp_path, _BOTH)
    assert loads(done) == ["sm_90a+tma", "sm_90a"]
    assert blocks(done) == [own, common] * 2
    assert compiled_texts(tmp_path) == ["first", "common"]
    files = map(read_cached, UserCache((tmp_path / "cache",)).files())
    kept = {tuple(sorted(file.entry.blobs)): file.entry.abi.num_threads for file in files}
    assert kept == {("sm_90a+tma",): 384, ("ptx", "sm_90a"): 128}
    # And the next one compiles nothing.
    done = run_unbundled(tmp_path, _BOTH)
    assert blocks(done) == [own, common] * 2
    assert compiled_texts(tmp_path) == ["first", "common"]
    assert done.errors == ""


def test_a_process_whose_first_arguments_do_not_suit_compiles_both(tmp_path: Path) -> None:
    done = run_unbundled(tmp_path, "strided[3](x, out, 0, 1, BLOCK=64)")
    assert blocks(done) == ["grid=3,1,1 block=128"]
    assert compiled_texts(tmp_path) == ["first", "common"]


def test_both_are_told_apart(tmp_path: Path) -> None:
    done = run_unbundled(tmp_path, _BOTH + 'print(*launch.resolved(), sep="\\n")\n')
    first, second = done.output.splitlines()
    assert f"compile sm_90a: loaded, for launches such that {OWN.tma_ok}" in first
    assert "compile sm_90a, common schedule on device 0" in second


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_refused_own_cubin_leads_to_the_common_one(tmp_path: Path, is_cached: bool) -> None:
    program = "strided[3](x, out, 16, 1, BLOCK=64)"
    if is_cached:
        run_unbundled(tmp_path, program)
    done = run_unbundled(
        tmp_path, program, FAKE_CUDA_FAIL_LOAD="sm_90a+tma=209", TILEWRIGHT_PTX="off"
    )
    # What was refused is not tried again under the name of another candidate.
    assert loads(done) == ["sm_90a+tma", "sm_90a"]
    assert blocks(done) == ["grid=3,1,1 block=128"]


def test_processes_that_hold_one_of_the_two_compile_the_other_once(tmp_path: Path) -> None:
    # Both hold the first before either needs the other.
    wait = """
import time
strided[3](x, out, 16, 1, BLOCK=64)
mine = FOLDER / f"ready-{os.getpid()}"
mine.touch()
while len(list(FOLDER.glob("ready-*"))) < 2:
    time.sleep(0.01)
strided[3](x, out, 0, 1, BLOCK=64)
"""
    write_bundle(tmp_path / "bundle", {})

    def process(index: int) -> Finished:
        folder = tmp_path / str(index)
        folder.mkdir()
        return run_unbundled(
            folder,
            f"import os\nFOLDER = Path({str(tmp_path)!r})\n"
            "stub_compiler.install(FOLDER, own=own, seconds=0.2)\n" + wait,
            bundle=tmp_path / "bundle",
            TILEWRIGHT_CACHE_DIR=str(tmp_path / "cache"),
        )

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(process, range(2)))
    assert compiled_texts(tmp_path) == ["first", "common"]
    assert [blocks(each) for each in done] == [["grid=3,1,1 block=384", "grid=3,1,1 block=128"]] * 2


def test_a_cache_with_the_common_one_alone_is_no_first_choice(tmp_path: Path) -> None:
    run_unbundled(tmp_path, _BOTH)
    for file in UserCache((tmp_path / "cache",)).files():
        if "sm_90a+tma" in read_cached(file).entry.blobs:
            file.unlink()
    done = run_unbundled(tmp_path, _BOTH)
    assert loads(done) == ["sm_90a+tma", "sm_90a"]
    assert compiled_texts(tmp_path) == ["first", "common", "first"]


def test_another_bundles_own_cubin_is_no_second_choice(tmp_path: Path) -> None:
    wanted = signatures(
        strided, x=(float32,), out=(float32,), row_stride=int64, column_stride=int64, BLOCK=64
    )
    others = [target for target in TARGETS if target not in ("sm_90a", "ptx")]
    write_bundle(tmp_path / "some", {strided: wanted}, targets=others, own={"strided": OWN})
    write_bundle(tmp_path / "whole", {strided: wanted}, own={"strided": OWN})
    done = run_unbundled(
        tmp_path, _BOTH, bundle=tmp_path / "whole", TILEWRIGHT_EXTRA_BUNDLES=str(tmp_path / "some")
    )
    assert loads(done) == ["sm_90a+tma", "sm_90a"]
    assert compiled_texts(tmp_path) == []


_PRELOAD = "from tilewright.runtime.preload import preload\npreload(strided)\n"


def test_preloading_covers_both(bundle: Path, tmp_path: Path) -> None:
    # The fake driver takes streams with an odd handle for captured ones.
    program = _PRELOAD + _BOTH.replace("BLOCK=64", "BLOCK=64, stream=7")
    done = run(bundle, tmp_path, program)
    assert blocks(done) == ["grid=3,1,1 block=384", "grid=3,1,1 block=128"] * 2
    assert sorted(loads(done)) == ["sm_90a", "sm_90a", "sm_90a+tma", "sm_90a+tma"]


def test_preloading_a_signature_compiles_both(tmp_path: Path) -> None:
    preload = """
from helpers.bundles import signatures
from tilewright.runtime.preload import preload
f32, i64 = dtypes.float32, dtypes.int64
wanted = signatures(strided, x=(f32,), out=(f32,), row_stride=i64, column_stride=i64, BLOCK=64)
preload(strided, signatures=tuple(wanted))
"""
    done = run_unbundled(tmp_path, preload + _BOTH.replace("BLOCK=64", "BLOCK=64, stream=7"))
    assert blocks(done) == ["grid=3,1,1 block=384", "grid=3,1,1 block=128"] * 2
    assert compiled_texts(tmp_path) == ["first", "common"] * 2


@pytest.mark.parametrize("missing", [("sm_90a", "ptx"), ("sm_90a",)], ids=["no floor", "floor"])
def test_what_was_preloaded_may_still_be_compiled_for_other_arguments(
    tmp_path: Path, missing: tuple[str, ...]
) -> None:
    wanted = signatures(
        strided, x=(float32,), out=(float32,), row_stride=int64, column_stride=int64, BLOCK=64
    )
    others = [target for target in TARGETS if target not in missing]
    write_bundle(tmp_path / "some", {strided: wanted}, targets=others, own={"strided": OWN})
    done = run_unbundled(tmp_path, _PRELOAD + _BOTH, bundle=tmp_path / "some")
    assert blocks(done) == ["grid=3,1,1 block=384", "grid=3,1,1 block=128"] * 2
    assert compiled_texts(tmp_path) == ["common"]
    # Without the compiler the floor is what is left, and preloading loads it.
    if "ptx" not in missing:
        program = _PRELOAD + _BOTH.replace("BLOCK=64", "BLOCK=64, stream=7")
        done = run(tmp_path / "some", tmp_path, program)
        assert sorted(loads(done)) == ["ptx", "ptx", "sm_90a+tma", "sm_90a+tma"]


def test_the_second_choice_of_a_bundle_without_one_is_compiled(tmp_path: Path) -> None:
    wanted = signatures(
        strided, x=(float32,), out=(float32,), row_stride=int64, column_stride=int64, BLOCK=64
    )
    others = [target for target in TARGETS if target not in ("sm_90a", "ptx")]
    write_bundle(tmp_path / "some", {strided: wanted}, targets=others, own={"strided": OWN})
    done = run_unbundled(tmp_path, _BOTH, bundle=tmp_path / "some")
    assert loads(done) == ["sm_90a+tma", "sm_90a"]
    assert blocks(done) == ["grid=3,1,1 block=384", "grid=3,1,1 block=128"] * 2
    assert compiled_texts(tmp_path) == ["common"]


def test_a_condition_may_be_long_and_need_not_fit_64_bits(tmp_path: Path) -> None:
    long = " and ".join([OWN.tma_ok, *(f"row_stride + {n} > 0" for n in range(300))])
    huge = f"{OWN.tma_ok} and row_stride * {2**61} > 0"
    wanted = signatures(
        strided, x=(float32,), out=(float32,), row_stride=int64, column_stride=int64, BLOCK=64
    )
    for name, condition in (("long", long), ("huge", huge)):
        folder = tmp_path / name
        own = replace(OWN, tma_ok=condition)
        write_bundle(folder / "bundle", {strided: wanted}, own={"strided": own})
        done = run(folder / "bundle", folder, "strided[2](x, out, 32, 1, BLOCK=64)\n")
        # What does not fit does not hold, and the common schedule serves.
        (line,) = done.lines("launch")
        assert ("block=384 " in line) == (name == "long"), line
