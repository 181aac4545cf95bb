"""Resolution as a pure function: every compute capability, odd drivers, limits and policies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.abi.arguments import LaunchAbi
from tilewright.abi.manifest import OWN_SCHEDULE, PTX, Blob, Entry
from tilewright.abi.target import ComputeCapability, Target
from tilewright.runtime import jit
from tilewright.runtime.device import DeviceFacts, imagined
from tilewright.runtime.resolve import Bundled, Candidate, Decision, Offers, Policy, resolve

_MIN_DRIVER = {"sm_80": 12000, "sm_90a": 12000, "sm_100f": 12080, "sm_120f": 12080, PTX: 11000}
_WHEEL = tuple(_MIN_DRIVER)


def _entry(targets: tuple[str, ...] = _WHEEL, *, shared_bytes: int = 0) -> Entry:
    def blob(target: str) -> Blob:
        return Blob(
            sha256="0" * 64,
            pack="p",
            size=1,
            kind="ptx" if target == PTX else "cubin",
            target=target,
            min_driver=_MIN_DRIVER.get(target, 12000),
            registers=0,
            spill_bytes=0,
            shared_bytes=0,
            toolchain="t",
            build_key="",
        )

    return Entry(
        kernel="k",
        family="f",
        signature="s",
        abi=LaunchAbi("k", (), 128, shared_bytes),
        blobs={target: blob(target) for target in targets},
    )


def _decide(
    gpu: str,
    *,
    driver: int = 13000,
    entry: Entry | None = None,
    cached: Entry | None = None,
    compiler: str | None = "the compiler's tools are not installed: x",
    policy: Policy | None = None,
    has_own_schedule: bool = False,
) -> Decision:
    capability = ComputeCapability.parse(gpu)
    bundled = () if entry is None else (Bundled(entry),)
    return resolve(
        "package.kernel",
        "(x:*f32) general",
        "ab" * 32,
        offers=Offers(
            bundled,
            () if cached is None else (cached,),
            compiler,
            jit.target_for(capability),
            has_own_schedule=has_own_schedule,
        ),
        device=imagined(capability, driver_version=driver),
        policy=policy or Policy(),
    )


def _names(decision: Decision) -> list[str]:
    return [str(candidate) for candidate in decision.candidates]


_EVERY_GPU = {
    "7.5": [],
    "8.0": ["prebuilt sm_80", "ptx"],
    "8.6": ["family sm_80", "ptx"],
    "8.7": ["family sm_80", "ptx"],
    "8.8": ["family sm_80", "ptx"],
    "8.9": ["family sm_80", "ptx"],
    "9.0": ["prebuilt sm_90a", "ptx"],
    "10.0": ["prebuilt sm_100f", "ptx"],
    "10.3": ["family sm_100f", "ptx"],
    "10.7": ["ptx"],
    "10.9": ["ptx"],
    "11.0": ["ptx"],
    "12.0": ["prebuilt sm_120f", "ptx"],
    "12.1": ["family sm_120f", "ptx"],
    "13.0": ["ptx"],
}


@pytest.mark.parametrize(("gpu", "expected"), _EVERY_GPU.items())
def test_every_compute_capability(gpu: str, expected: list[str]) -> None:
    assert _names(_decide(gpu, entry=_entry())) == expected


@pytest.mark.parametrize(
    ("gpu", "driver", "expected"),
    [
        ("9.0", 11080, ["ptx"]),
        ("9.0", 12000, ["prebuilt sm_90a", "ptx"]),
        ("9.0", 12040, ["prebuilt sm_90a", "ptx"]),
        ("10.0", 12040, ["ptx"]),
        ("10.0", 12080, ["prebuilt sm_100f", "ptx"]),
        ("12.0", 12070, ["ptx"]),
        ("9.0", 10020, []),
        ("9.0", 99000, ["prebuilt sm_90a", "ptx"]),
    ],
)
def test_old_and_new_drivers(gpu: str, driver: int, expected: list[str]) -> None:
    assert _names(_decide(gpu, driver=driver, entry=_entry())) == expected


@pytest.mark.parametrize("compiler", [None, "the compiler's tools are not installed: x"])
def test_a_refused_portable_text_is_not_called_missing(compiler: str | None) -> None:
    refused = _decide("9.0", driver=10020, entry=_entry(), compiler=compiler)
    texts = [str(reason) for reason in refused.trace]
    assert "- ptx: needs a driver for CUDA 11.0, this one is for 10.2" in texts
    assert not any("there is no portable text" in text for text in texts)
    # What the compiler would make is the same text, for the same drivers.
    assert "compiled ptx" not in _names(refused)
    absent = _decide("9.0", entry=_entry(("sm_90a",)))
    assert "- ptx: there is no portable text of this kernel" in map(str, absent.trace)


def test_shared_memory_is_a_constraint() -> None:
    entry = _entry(shared_bytes=120 * 1024)
    assert _names(_decide("8.0", entry=entry)) == ["prebuilt sm_80", "ptx"]
    decision = _decide("8.6", entry=entry)
    assert _names(decision) == []
    assert "- prebuilt sm_80: needs 122880 bytes of shared memory, the GPU has 101376" in map(
        str, decision.trace
    )


def test_exact_comes_before_family_and_newer_before_older() -> None:
    entry = _entry(("sm_80", "sm_86", "sm_89"))
    assert _names(_decide("8.9", entry=entry)) == ["prebuilt sm_89", "family sm_86", "family sm_80"]
    assert _names(_decide("8.6", entry=entry)) == ["prebuilt sm_86", "family sm_80"]
    both = _entry(("sm_100", "sm_100a", "sm_100f"))
    assert _names(_decide("10.0", entry=both)) == [
        "prebuilt sm_100a",
        "prebuilt sm_100f",
        "prebuilt sm_100",
    ]
    assert _names(_decide("10.3", entry=both)) == ["family sm_100f", "family sm_100"]


def test_thor_is_not_known_by_its_old_name() -> None:
    """CUDA 13 renamed sm_101 to sm_110: the device says 11.0, and only that counts."""
    decision = _decide("11.0", entry=_entry(("sm_101f", "sm_110f")))
    assert _names(decision) == ["prebuilt sm_110f"]
    assert "- prebuilt sm_101f: does not run on compute capability 11.0" in map(str, decision.trace)


def test_the_order_is_bundle_cache_compiler_floor() -> None:
    decision = _decide("9.0", entry=_entry(), cached=_entry(("sm_90a", PTX)), compiler=None)
    assert _names(decision) == [
        "prebuilt sm_90a",
        "cached sm_90a",
        "compile sm_90a",
        "ptx",
        "cached ptx",
    ]


def test_a_target_with_two_schedules_is_compiled_for_both_if_need_be() -> None:
    decision = _decide("9.0", compiler=None, has_own_schedule=True)
    assert _names(decision) == ["compile sm_90a", "compile sm_90a, common schedule", "compiled ptx"]
    assert [candidate.takes_all for candidate in decision.candidates] == [False, True, True]


def test_policies_forbid_and_say_so() -> None:
    no_jit = _decide("9.0", compiler=None, policy=Policy(jit=False))
    assert _names(no_jit) == []
    assert "- compile: TILEWRIGHT_JIT=off forbids the compiler" in map(str, no_jit.trace)
    no_ptx = _decide("13.0", entry=_entry(), compiler=None, policy=Policy(ptx=False))
    assert _names(no_ptx) == []
    assert "- ptx: TILEWRIGHT_PTX=off forbids the driver's compiler" in map(str, no_ptx.trace)


def test_a_gpu_that_no_toolchain_knows_gets_portable_text() -> None:
    assert _names(_decide("13.0", compiler=None)) == ["compiled ptx"]
    assert _names(_decide("7.5", compiler=None)) == []
    assert _names(_decide("9.0", compiler=None)) == ["compile sm_90a", "compiled ptx"]


def test_blackwell_is_called_untuned() -> None:
    texts = [reason.text for reason in _decide("10.3", entry=_entry()).trace if reason.is_accepted]
    assert texts[0] == "sm_100f also runs on 10.3 (untuned: no tcgen05 schedule)"


@pytest.mark.parametrize("gpu", _EVERY_GPU)
def test_every_decision_explains_every_blob(gpu: str) -> None:
    decision = _decide(gpu, entry=_entry())
    text = " ".join(reason.candidate for reason in decision.trace)
    assert all(target in text for target in _WHEEL)
    assert all(reason.text for reason in decision.trace)


@pytest.mark.parametrize(
    ("gpu", "options", "remedy"),
    [
        ("7.5", {}, "GPUs older than 8.0 are not supported"),
        ("9.0", {}, "pip install tilewright[compiler]"),
        ("9.0", {"policy": Policy(jit=False)}, "allow the compiler (TILEWRIGHT_JIT=on)"),
    ],
)
def test_the_error_names_the_remedy(gpu: str, options: dict[str, Policy], remedy: str) -> None:
    decision = _decide(gpu, **options)  # type: ignore[arg-type]  # the values are policies
    text = str(decision.error())
    assert remedy in text
    assert "package.kernel" in text
    assert f"compute capability {gpu}" in text


def test_candidates_carry_what_loading_needs() -> None:
    entry = _entry()
    first = _decide("9.0", entry=entry).candidates[0]
    assert first == Candidate("prebuilt", "sm_90a", entry, entry.blobs["sm_90a"])


def test_what_the_compiler_assembles_for_a_device_runs_on_it() -> None:
    assert jit.target_for(ComputeCapability(8, 9)) == Target(8, 0)
    assert jit.target_for(ComputeCapability(9, 0)) == Target(9, 0, "a")
    assert jit.target_for(ComputeCapability(10, 7)) is None


def test_an_imagined_device_has_the_limits_of_its_kind() -> None:
    assert imagined(ComputeCapability(8, 6), driver_version=12000).shared_bytes == 101376
    assert imagined(ComputeCapability(9, 0), driver_version=12000) == DeviceFacts(
        ComputeCapability(9, 0), 12000, 232448
    )


def test_forced_ptx_leaves_the_floor_alone() -> None:
    decision = _decide("9.0", entry=_entry(), policy=Policy(jit=False, cubins=False))
    assert _names(decision) == ["ptx"]
    assert str(decision.trace[0]) == "- prebuilt: CUDA_FORCE_PTX_JIT=1 asks for PTX alone"
    with_compiler = _decide("9.0", entry=None, compiler=None, policy=Policy(cubins=False))
    assert _names(with_compiler) == ["compiled ptx"]


def test_a_schedule_of_its_own_is_tried_first_and_says_when_it_serves() -> None:
    entry = _entry()
    own = replace(entry.abi, shared_bytes=200_000, tma_ok="n > 0")
    blob = replace(entry.blobs["sm_90a"], abi=own)
    entry = replace(entry, blobs={**entry.blobs, f"sm_90a{OWN_SCHEDULE}": blob})
    decision = _decide("9.0", entry=entry)
    assert _names(decision) == ["prebuilt sm_90a+tma", "prebuilt sm_90a", "ptx"]
    assert "+ prebuilt sm_90a+tma: made for this GPU, where n > 0" in map(str, decision.trace)
    assert _names(_decide("8.0", entry=entry)) == ["prebuilt sm_80", "ptx"]
    # Its limits are those of its own launch.
    greedy = replace(blob, abi=replace(own, shared_bytes=300_000))
    entry = replace(entry, blobs={**entry.blobs, f"sm_90a{OWN_SCHEDULE}": greedy})
    assert _names(_decide("9.0", entry=entry)) == ["prebuilt sm_90a", "ptx"]
