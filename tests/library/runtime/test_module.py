"""Loading walks the candidates; a loaded kernel's whole launch ABI reaches the driver."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from helpers.bundles import PACK, signatures, write_bundle, zero_blobs
from helpers.launches import Run, run_sample
from helpers.sample_kernels import add, strided
from tilewright.abi.arguments import AbiParameter, LaunchAbi, TensorMapSpec
from tilewright.abi.dtypes import float32, int32, int64

_LAUNCH = """
x, y, out = arrays()
add[1](x, y, out, 64, BLOCK=64)
"""


def _loads(log: list[str]) -> list[str]:
    """Return what was loaded with the driver's answer: `sm_90a 209`."""
    return [f"{line.split()[1]} {line.split()[-1]}" for line in log]


@pytest.mark.parametrize("code", [200, 209, 218, 222])
def test_a_refused_binary_leads_to_the_next(run: Run, code: int) -> None:
    done = run(
        _LAUNCH
        + """
(loaded,) = launch._loaded.values()
print(*loaded.trace, sep="\\n")
""",
        FAKE_CUDA_FAIL_LOAD=f"sm_90a={code}",
    )
    assert _loads(done.lines("cuLibraryLoadData")) == [f"sm_90a {code}", "ptx 0"]
    assert "- prebuilt sm_90a: the " in done.output
    assert f"(error {code})" in done.output
    assert "+ ptx: loaded" in done.output
    assert len(done.lines("launch")) == 1
    # Not in silence: the refusal is a warning.
    assert "refused" in done.errors


def test_when_all_are_refused_the_error_holds_the_whole_trace(run: Run) -> None:
    done = run(
        """
x, y, out = arrays()
try:
    add[1](x, y, out, 64, BLOCK=64)
except errors.ResolveError as error:
    print(error)
""",
        FAKE_CUDA_FAIL_LOAD="sm_90a=209,version=222",
    )
    for part in (
        "kernel helpers.sample_kernels.add",
        "(x:*f32:16, y:*f32:16, out:*f32:16, n:i64:s, BLOCK=64) fast num_warps=4 num_stages=3",
        "compute capability 9.0, driver for CUDA 12.8",
        "- prebuilt sm_80: does not run on compute capability 9.0",
        "- compile: TILEWRIGHT_JIT=off",
        "- prebuilt sm_90a: the driver finds no binary for this GPU in it (error 209)",
        "- ptx: the PTX version is newer than the driver (error 222)",
        "remedy: allow the compiler",
    ):
        assert part in done.output
    assert not done.lines("launch")


def test_another_driver_error_is_raised_with_code_and_name(run: Run) -> None:
    done = run(
        """
x, y, out = arrays()
try:
    add[1](x, y, out, 64, BLOCK=64)
except errors.DriverError as error:
    print(error.code, error.call, error)
""",
        FAKE_CUDA_FAIL_LOAD="sm_90a=719",
    )
    assert done.output.startswith("719 cuLibraryLoadData")
    assert "CUDA_ERROR_LAUNCH_FAILED" in done.output


@pytest.mark.parametrize(
    ("gpu", "driver", "loaded"),
    [
        ("8.0", "12000", "sm_80"),
        ("8.9", "12040", "sm_80"),
        ("9.0", "12080", "sm_90a"),
        ("10.3", "13000", "sm_100f"),
        ("12.1", "13000", "sm_120f"),
        ("13.0", "13000", "ptx"),
    ],
)
def test_each_gpu_gets_its_binary(run: Run, gpu: str, driver: str, loaded: str) -> None:
    done = run(_LAUNCH, FAKE_CUDA_DEVICES=gpu, FAKE_CUDA_VERSION=driver)
    assert _loads(done.lines("cuLibraryLoadData")) == [f"{loaded} 0"]


def test_a_driver_without_libraries_loads_modules(run: Run) -> None:
    done = run(_LAUNCH, has_library_api=False)
    assert _loads(done.lines("cuModuleLoadDataEx")) == ["sm_90a 0"]
    assert len(done.lines("launch")) == 1


def test_damaged_bytes_never_reach_the_driver(bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "bundle"
    copy.mkdir()
    for file in bundle.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    zero_blobs(copy / PACK)
    done = run_sample(
        """
x, y, out = arrays()
refused(errors.ResolveError, lambda: add[1](x, y, out, 64, BLOCK=64))
""",
        tmp_path,
        TILEWRIGHT_BUNDLE_PATH=str(copy),
    )
    assert done.output.startswith("ResolveError")
    assert not done.lines("cuLibraryLoadData", "launch")
    assert "CorruptBlobError" in done.errors


@pytest.mark.parametrize("damage", ["missing", "truncated", "other version"])
def test_a_damaged_bundle_does_not_pass_for_an_empty_one(
    bundle: Path, tmp_path: Path, damage: str
) -> None:
    copy = tmp_path / "bundle"
    copy.mkdir()
    manifest = (bundle / "manifest.json").read_bytes()
    text = {
        "missing": b"",
        "truncated": manifest[: len(manifest) // 2],
        "other version": manifest.replace(b'"schema":3', b'"schema":9', 1),
    }[damage]
    if damage != "missing":
        (copy / "manifest.json").write_bytes(text)
    done = run_sample(
        """
x, y, out = arrays()
try:
    add[1](x, y, out, 64, BLOCK=64)
except errors.ResolveError as error:
    print(error)
add.launcher.forget()
refused(errors.ResolveError, lambda: add[1](x, y, out, 64, BLOCK=64))
""",
        tmp_path,
        TILEWRIGHT_BUNDLE_PATH=str(copy),
    )
    reason = {
        "missing": "cannot be read: No such file",
        "truncated": "is not whole",
        "other version": "has schema 9, this library reads 3",
    }[damage]
    fault, without, *_ = (line for line in done.output.splitlines() if line.startswith("  - "))
    assert fault.startswith(f"  - bundle {copy}: ")
    assert reason in fault
    assert without.endswith("no bundle that can be used has an entry for this kernel and signature")
    # Once, not with every launch.
    assert done.errors.count(reason) == 1
    assert not done.lines("cuLibraryLoadData", "launch")


def test_large_shared_memory_is_allowed_once(tmp_path: Path) -> None:
    wanted = signatures(add, x=(float32,), y=(float32,), out=(float32,), n=int64, BLOCK=64)
    write_bundle(tmp_path / "bundle", {add: wanted}, shared_bytes=150_000)
    done = run_sample(
        _LAUNCH + "add[1](x, y, out, 64, BLOCK=64)\n",
        tmp_path,
        TILEWRIGHT_BUNDLE_PATH=str(tmp_path / "bundle"),
    )
    assert done.lines("cuFuncSetAttribute") == ["cuFuncSetAttribute add 8=150000"]
    assert all("shared=150000" in line for line in done.lines("launch"))


def test_a_capture_refuses_to_load_and_names_preload(run: Run) -> None:
    # The fake driver takes streams with an odd handle for captured ones.
    done = run("""
from tilewright.runtime.preload import preload
x, y, out = arrays()
refused(errors.LaunchError, lambda: add[1](x, y, out, 64, BLOCK=64, stream=7))
print(len(preload(add)))
add[1](x, y, out, 64, BLOCK=64, stream=7)
add[1](x, y, out, 2**40, BLOCK=128, stream=7)
""")
    refusal, count = done.output.splitlines()
    assert "tilewright.preload" in refusal
    assert int(count) == len(done.lines("cuLibraryLoadData")) == 24
    assert [line.split()[5] for line in done.lines("launch")] == ["stream=7", "stream=7"]
    # Waiting for a stream outside the capture would break it.
    assert not done.lines("wait")


def test_preload_of_an_unbundled_kernel_asks_for_signatures(run: Run) -> None:
    done = run("""
import tilewright.language as tl
from tilewright.runtime.preload import preload
@tl.kernel
def unknown(x):
    tl.store(x, 1.0)
refused(errors.ArgumentError, lambda: preload(unknown))
refused(errors.ArgumentError, lambda: preload("unknown"))
refused(errors.ArgumentError, lambda: preload(7))
refused(errors.ArgumentError, lambda: preload(unknown, signatures="f32"))
""")
    no_bundle, no_family, no_kernel, no_signature = done.output.splitlines()
    assert "in no bundle" in no_bundle
    assert "there is no bundled family 'unknown'; bundled are: test" in no_family
    assert "preload takes kernels and names of families, got 7" in no_kernel
    assert "signatures of preload are each a KernelSignature, got 'f'" in no_signature


_EXPRESSIONS = LaunchAbi(
    entry="strided",
    parameters=(
        AbiParameter("pointer", "out", float32),
        AbiParameter("grid", "grid", int32, axis=1),
        AbiParameter("grid", "grid", int64, axis=0),
        AbiParameter(
            "tensor_map",
            "map",
            tensor_map=TensorMapSpec(
                pointer="x",
                dtype=float32,
                sizes=("cdiv(row_stride, 3)", "max(row_stride, BLOCK)"),
                strides=("row_stride", "1"),
                box=(8, 32),
                swizzle_bytes=128,
            ),
        ),
        AbiParameter("workspace", "scratch", size_expression="grid0 * 4 + row_stride", zeroed=True),
    ),
    num_threads=256,
    shared_bytes=1024,
    cluster=(2, 1, 1),
    tma_ok="x % 16 == 0 and row_stride % 16 == 0",
    writes=("out",),
)


@pytest.fixture(scope="module")
def rich_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rich")
    wanted = signatures(
        strided, x=(float32,), out=(float32,), row_stride=int64, column_stride=int64, BLOCK=64
    )
    write_bundle(folder, {strided: wanted}, abis={"strided": _EXPRESSIONS})
    return folder


def test_every_kind_of_parameter_is_packed(rich_bundle: Path, tmp_path: Path) -> None:
    done = run_sample(
        """
x, out = arrays(2, size=4096)
for _ in range(3):
    strided[(5, 3)](x, out, 32, 1, BLOCK=64)
print(x.address, out.address, *native.tensor_map_statistics().values())
print(native.pool_statistics(0)["live_bytes"])
""",
        tmp_path,
        TILEWRIGHT_BUNDLE_PATH=str(rich_bundle),
    )
    x, out, hits, misses, live = map(int, done.output.split())
    assert (hits, misses) == (0, 1)  # what the first launch made served the others
    assert live == 2 * 4096 * 4  # the workspace went back
    (encoded,) = done.lines("encode")
    # innermost first: size/box/stride in bytes
    assert encoded == "encode type=7 rank=2 swizzle=3 sizes=64/32/128,11/8/0,"
    line = done.lines("launch")[0]
    assert "grid=10,3,1 block=256 shared=1024" in line
    assert "attribute4=2,1,1" in line
    packed = bytes.fromhex(line.partition("packed=")[2])
    assert len(packed) == 128 + 128 + 8
    assert struct.unpack("<Qi4xq", packed[:24]) == (out, 3, 5)
    assert struct.unpack("<Q", packed[128:136]) == (x,)
    assert packed[136:256] == b"\x5a" * 120
    workspaces = [line for line in done.lines("cuMemAllocAsync") if " 512 " in line]
    assert len(workspaces) == 1  # 52 bytes, then reused


@pytest.mark.parametrize("origin", ["cubin", "floor"])
def test_a_kernel_that_waits_by_itself_may_begin_while_others_end(
    origin: str, tmp_path: Path
) -> None:
    folder = tmp_path / "bundle"
    wanted = signatures(
        strided, x=(float32,), out=(float32,), row_stride=int64, column_stride=int64, BLOCK=64
    )
    write_bundle(folder, {strided: wanted}, abis={"strided": _EXPRESSIONS}, waiting=True)
    done = run_sample(
        """
from tilewright.runtime.graph import capture
x, out = arrays(2, size=4096)
strided[5](x, out, 32, 1, BLOCK=64)
with stream.Stream() as own:
    strided[6](x, out, 32, 1, BLOCK=64, stream=own)
    with capture(stream=own):
        strided[7](x, out, 32, 1, BLOCK=64, stream=own)
""",
        tmp_path,
        TILEWRIGHT_BUNDLE_PATH=str(folder),
        CUDA_FORCE_PTX_JIT="1" if origin == "floor" else "0",
    )
    lines = done.lines("launch")
    assert len(lines) == 3
    assert all("attribute4=2,1,1" in line for line in lines)
    # The floor's text waits for nothing, and in a graph the edge would be of another kind.
    overlapping = ["attribute6=1" in line for line in lines]
    assert overlapping == ([True, True, False] if origin == "cubin" else [False] * 3)


def test_each_launch_gets_the_tensor_map_of_its_own_arguments(
    rich_bundle: Path, tmp_path: Path
) -> None:
    done = run_sample(
        """
x, other, out = arrays(3, size=4096)
launches = [(x, 32, 5), (x, 48, 5), (x, 32, 5), (other, 32, 5), (other, 32, 6), (other, 32, 6)]
for array, row_stride, programs in launches:
    strided[programs](array, out, row_stride, 1, BLOCK=64)
refused(errors.ResolveError, lambda: strided[6](other, out, 33, 1, BLOCK=64))
refused(errors.ResolveError, lambda: strided[6](other[1:], out, 32, 1, BLOCK=64))
strided[6](other, out, 32, 1, BLOCK=64)
print(x.address, other.address, *native.tensor_map_statistics().values())
""",
        tmp_path,
        TILEWRIGHT_BUNDLE_PATH=str(rich_bundle),
    )
    *refusals, last = done.output.splitlines()
    assert len(refusals) == 2
    x, other, hits, misses = map(int, last.split())
    # Found again: the first's by the third, and by the fifth, over another grid, the fourth's.
    assert (hits, misses) == (2, 3)
    sizes = [line.partition("sizes=")[2] for line in done.lines("encode")]
    assert sizes == ["64/32/128,11/8/0,", "64/32/192,16/8/0,", "64/32/128,11/8/0,"]
    packed = [bytes.fromhex(line.partition("packed=")[2]) for line in done.lines("launch")]
    addresses = [struct.unpack("<Q", each[128:136])[0] for each in packed]
    assert addresses == [x, x, x, other, other, other, other]


def test_the_launch_predicate_is_enforced(rich_bundle: Path, tmp_path: Path) -> None:
    done = run_sample(
        """
x, out = arrays(2, size=4096)
refused(errors.ResolveError, lambda: strided[1](x, out, 33, 1, BLOCK=64))
refused(errors.ResolveError, lambda: strided[1](x[1:], out, 32, 1, BLOCK=64))
strided[1](x, out, 48, 1, BLOCK=64)
refused(errors.LaunchError, lambda: strided[8](x, out, 2**63 - 16, 1, BLOCK=64))
""",
        tmp_path,
        TILEWRIGHT_BUNDLE_PATH=str(rich_bundle),
    )
    lines = done.output.splitlines()
    condition = "x % 16 == 0 and row_stride % 16 == 0"
    assert f"launches such that {condition} does not take these arguments" in lines[0]
    assert lines[1].startswith("ResolveError")
    assert "does not fit 64 bits" in lines[2]
    assert len(done.lines("launch")) == 1


def test_a_persistent_kernel_gets_resident_programs(tmp_path: Path) -> None:
    abi = LaunchAbi(
        entry="add",
        parameters=(AbiParameter("grid", "grid", int64, axis=0),),
        num_threads=128,
        cluster=(2, 1, 1),
        grid_kind="persistent",
    )
    wanted = signatures(add, x=(float32,), y=(float32,), out=(float32,), n=int64, BLOCK=64)
    write_bundle(tmp_path / "bundle", {add: wanted}, abis={"add": abi})
    done = run_sample(
        """
x, y, out = arrays()
add[100_000](x, y, out, 64, BLOCK=64)
add[(3, 5)](x, y, out, 64, BLOCK=64)
""",
        tmp_path,
        TILEWRIGHT_BUNDLE_PATH=str(tmp_path / "bundle"),
    )
    # 132 multiprocessors with 2 thread blocks each are 132 clusters of 2.
    first, second = done.lines("launch")
    assert "grid=264,1,1" in first
    assert "grid=30,1,1" in second
    assert bytes.fromhex(first.partition("packed=")[2]) == struct.pack("<q", 100_000)


def test_an_abi_that_does_not_fit_the_signature_is_refused(tmp_path: Path) -> None:
    abi = LaunchAbi("add", (AbiParameter("scalar", "n", int32),), num_threads=128)
    wanted = signatures(add, x=(float32,), y=(float32,), out=(float32,), n=int64, BLOCK=64)
    write_bundle(tmp_path / "bundle", {add: wanted}, abis={"add": abi})
    done = run_sample(
        """
x, y, out = arrays()
refused(errors.FormatError, lambda: add[1](x, y, out, 64, BLOCK=64))
""",
        tmp_path,
        TILEWRIGHT_BUNDLE_PATH=str(tmp_path / "bundle"),
    )
    assert "wants n: i32" in done.output
