"""What users reported of libraries that ship and load kernels, each with our test of it.

The issues are of public trackers: races of caches, stale and colliding keys, the wrong binary for a
GPU, tools needed at run time, wheels that do not install. An issue whose symptom could be ours
names the tests that would fail if it were. The numbers count the issues; those left out have
symptoms that this library cannot have (another operating system, another language).
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]
_PACKAGES = Path(__file__).parents[2]

_RUNTIME = "library/runtime"
_COLD = f"{_RUNTIME}/test_faults.py::test_sixteen_cold_processes_compile_once_and_all_load"
_NO_TOOLS = (
    f"{_RUNTIME}/test_import.py::test_a_prebuilt_launch_starts_no_process_and_writes_no_file",
    "wheels/test_check_wheel.py::test_an_import_or_launch_that_starts_a_process_fails",
)
_EVERY_GPU = (
    f"{_RUNTIME}/test_resolve.py::test_every_compute_capability",
    "wheels/test_check_wheel.py::test_a_gpu_that_gets_another_blob_fails",
)
_BYTES = "compiler/test_bytes.py"
_KEYS = "library/abi/test_keys.py"

ISSUES: dict[int, tuple[str, tuple[str, ...]]] = {
    # Races, corruption, locks
    1: (
        "flashinfer 4062: processes that start cold publish a bad or empty binary",
        (_COLD, f"{_RUNTIME}/test_faults.py::test_killed_compilations_leave_a_cache_that_works"),
    ),
    2: ("flashinfer 2338, 2339: ranks race for one build log", (_COLD,)),
    3: (
        "flashinfer 1467: a reader loads while another rebuilds",
        (
            f"{_RUNTIME}/test_bundles.py::"
            "test_readers_go_on_while_another_process_rebuilds_the_bundle",
            f"{_RUNTIME}/test_bundles.py::test_a_decision_outlives_the_bundle_it_was_made_from",
        ),
    ),
    5: (
        "sglang 19583: ranks queue for a lock at the first request",
        (f"{_RUNTIME}/test_faults.py::test_a_prebuilt_launch_waits_for_nobody",),
    ),
    6: (
        "triton 11512: EBUSY from a network file system",
        (f"{_RUNTIME}/test_cache.py::test_a_full_or_failing_disk_loses_only_the_file",),
    ),
    7: (
        "triton 11319: a mixed group of files gives NaN in silence",
        (
            f"{_RUNTIME}/test_cache.py::test_every_flipped_byte_is_noticed",
            f"{_RUNTIME}/test_cache.py::test_the_file_of_another_kernel_is_not_taken",
            f"{_RUNTIME}/test_corruption.py::"
            "test_no_corruption_reaches_the_driver_and_doctor_reports_each",
        ),
    ),
    8: (
        "triton 2688, 4002, 4295: a linked cache folder, a cleaner at work",
        (
            f"{_RUNTIME}/test_cache.py::test_a_symlinked_folder_works",
            f"{_RUNTIME}/test_cache.py::"
            "test_a_cleaner_that_runs_at_the_same_time_costs_at_most_the_file",
        ),
    ),
    10: ("DeepGEMM 301, 302: ranks race to compile", (_COLD,)),
    12: ("flash-attention 2647: each rank compiles again", (_COLD,)),
    13: ("warp 1284: several processes crash each other", (_COLD,)),
    # Keys: stale, missed for nothing, colliding, not deterministic
    15: (
        "triton 11817, 11832, 2597: lines and paths in the key",
        (
            f"{_KEYS}::test_comments_and_blank_lines_do_not_enter",
            f"{_KEYS}::test_module_and_file_do_not_enter",
            f"{_RUNTIME}/test_store.py::test_only_a_change_of_meaning_makes_another_kernel",
        ),
    ),
    16: (
        "triton 11091: a cubin depends on the time of its source",
        (f"{_BYTES}::test_a_file_that_is_moved_touched_or_commented_gives_the_same_bytes",),
    ),
    18: (
        "cupy 9830: one key for two targets",
        (
            f"{_KEYS}::test_build_key_sees_every_part",
            f"{_RUNTIME}/test_cache.py::test_keys_targets_and_compilers_are_kept_apart",
        ),
    ),
    19: (
        "warp 1511, 1211, 1231: a short hash gives another kernel",
        (
            f"{_RUNTIME}/test_cache.py::test_the_file_of_another_kernel_is_not_taken",
            "library/abi/test_manifest.py::test_a_record_under_another_key_is_damaged",
            f"{_KEYS}::test_fields_are_kept_apart",
        ),
    ),
    21: (
        "tilelang 2662: the key depends on the order of building",
        (f"{_BYTES}::test_the_order_in_which_kernels_are_made_does_not_enter_their_keys",),
    ),
    23: (
        "flashinfer 3556: times of files on a network disk compile all again",
        (f"{_RUNTIME}/test_store.py::test_a_copy_under_another_name_has_the_bundled_entries",),
    ),
    25: (
        "DeepGEMM 388, vllm 48190: an absolute path in the key",
        (
            f"{_KEYS}::test_module_and_file_do_not_enter",
            f"{_RUNTIME}/test_cache.py::test_the_folder_may_move",
            "wheels/test_releasing.py::test_every_command_of_the_page_runs",
        ),
    ),
    27: (
        "flashinfer 4581: a key of tensor maps with bytes that nobody set",
        (
            f"{_RUNTIME}/test_module.py::test_every_kind_of_parameter_is_packed",
            "benchmarks/test_suites.py::test_two_tensor_maps_are_encoded_once_and_packed",
        ),
    ),
    28: (
        "chainer 1348, cupy 4926: a cache that grows",
        (
            f"{_RUNTIME}/test_cache.py::test_the_oldest_files_go_when_the_cache_is_too_large",
            f"{_RUNTIME}/test_cache.py::test_what_killed_writers_left_is_removed_after_a_day",
        ),
    ),
    # The wrong binary for a GPU, or none
    29: ("flashinfer 3294, 3170: 12.1 gets binaries of 10.x", _EVERY_GPU),
    30: ("sglang 29317, 18203, 18747: two folders for all GPUs", _EVERY_GPU),
    32: (
        "sglang 34340, 34360, 27384, vllm 46796: compatible, and yet it fails",
        (
            f"{_RUNTIME}/test_faults.py::test_a_binary_that_was_validated_nowhere_is_told_of_once",
            "library/cli/test_explain.py::test_needs_are_told_as_a_range_and_validation_by_name",
        ),
    ),
    33: (
        "vllm 39233, 34470, 31544: Thor, and what its target is called",
        (f"{_RUNTIME}/test_resolve.py::test_thor_is_not_known_by_its_old_name", *_EVERY_GPU),
    ),
    34: ("xinfer 312: binaries for 100f on 12.0", _EVERY_GPU),
    35: (
        "flash-attention 1785: no image for a new GPU",
        (
            f"{_RUNTIME}/test_faults.py::test_forced_ptx_takes_the_floor_of_a_kernel_that_has_cubins",
            f"{_RUNTIME}/test_resolve.py::test_a_gpu_that_no_toolchain_knows_gets_portable_text",
        ),
    ),
    36: ("warp 963: 12.1 and its target", _EVERY_GPU),
    37: (
        "HF kernels 707, 774, 698, 444: the process ends on an unknown GPU",
        (
            f"{_RUNTIME}/test_faults.py::test_the_library_never_ends_the_process",
            "project/test_field_issues.py::test_only_the_commands_end_a_process",
        ),
    ),
    39: (
        "gpuowl 31, cupy 7455: a driver older than the toolkit",
        (
            f"{_RUNTIME}/test_resolve.py::test_old_and_new_drivers",
            f"{_RUNTIME}/test_module.py::test_a_refused_binary_leads_to_the_next",
            f"{_RUNTIME}/test_faults.py::test_what_cannot_run_says_what_would_help",
        ),
    ),
    40: (
        "pytorch 153697, 165243: a package for the GPU it was built on",
        (f"{_RUNTIME}/test_module.py::test_each_gpu_gets_its_binary",),
    ),
    41: (
        "cuTile 1.6: compiled for device 0 instead of the launch's",
        (f"{_RUNTIME}/test_faults.py::test_devices_of_several_kinds_each_get_their_binary",),
    ),
    # Latency, tools at run time, graphs, fork
    43: (
        "audio.cpp 559: a minute of compiling at the first run",
        (*_NO_TOOLS, f"{_RUNTIME}/test_import.py::test_import_touches_nothing"),
    ),
    44: (
        "triton 2637: a launch costs 220 us",
        ("benchmarks/test_gate.py::test_a_launch_must_beat_the_peers_in_its_run",),
    ),
    45: ("a serving stack, 1386: cuobjdump is needed at run time", _NO_TOOLS),
    46: ("dynamo 2945, DeepGEMM 359: nvcc is needed at run time", _NO_TOOLS),
    48: (
        "TransformerEngine 872, xgrammar 231, vllm 32611: import starts CUDA, fork breaks",
        (
            f"{_RUNTIME}/test_import.py::test_import_touches_nothing",
            f"{_RUNTIME}/test_launch.py::test_a_fork_before_first_use_is_fine",
        ),
    ),
    49: (
        "unified-runtime 2678: setting an attribute waits for the device",
        (f"{_RUNTIME}/test_module.py::test_large_shared_memory_is_allowed_once",),
    ),
    51: (
        "triton 10442, 9235, 11011: small tensors' maps on Blackwell",
        (f"{_BYTES}::test_no_target_but_hopper_is_given_tensor_maps",),
    ),
    52: (
        "cutlass 2081: a tensor map copied to a wrong place",
        (f"{_RUNTIME}/test_module.py::test_every_kind_of_parameter_is_packed",),
    ),
    # Packages
    53: (
        "flash-attention 1708, 1762: GLIBC_2.32 not found",
        ("wheels/test_check_wheel.py::test_a_symbol_of_a_newer_glibc_is_told",),
    ),
    54: (
        "flash-attention 919, 975, 836, 1644: undefined symbols of torch",
        ("wheels/test_check_wheel.py::test_the_extension_must_be_portable",),
    ),
    55: (
        "flashinfer 3757, 3257, 4519, 4527: sizes that grow until the upload fails",
        (
            "wheels/test_check_wheel.py::test_growth_is_told_by_part",
            "wheels/test_check_wheel.py::test_size_is_limited",
        ),
    ),
    56: (
        "pypi 10686, vllm 19794, 45277: over the size limit, GPUs are dropped",
        (
            "wheels/test_check_wheel.py::test_size_is_limited",
            "release/test_bundle.py::test_a_passed_budget_fails",
        ),
    ),
    57: (
        "flashinfer 4337, 4869, 4781: a companion of another version stops the import",
        (
            f"{_RUNTIME}/test_bundles.py::test_a_launch_goes_on_past_a_damaged_bundle",
            f"{_RUNTIME}/test_bundles.py::test_the_version_text_of_a_bundle_decides_nothing",
        ),
    ),
    59: (
        "flashinfer 1352: offline, and something is fetched",
        (*_NO_TOOLS, "wheels/test_check_wheel.py::test_a_good_wheel_passes"),
    ),
    60: (
        "nf-core 463, fms-hf-tuning 367, sonar 458: no HOME, or one that cannot be written",
        (
            f"{_RUNTIME}/test_faults.py::"
            "test_a_kernel_is_compiled_and_launched_without_any_place_to_keep_it",
            f"{_RUNTIME}/test_import.py::test_import_needs_no_home_and_no_path",
        ),
    ),
    61: (
        "tilelang 1933: no wheel for aarch64",
        (
            "wheels/test_check_wheel.py::test_a_wheel_for_another_processor_passes_here",
            "wheels/test_kernel_package.py::test_the_wheel_is_for_every_platform_and_has_its_bundle",
        ),
    ),
    62: (
        "triton 3362: no compiling on a machine without a GPU",
        (
            "release/test_bundle.py::test_the_manifest_holds_every_entry_with_every_blob",
            f"{_BYTES}::test_a_file_that_is_moved_touched_or_commented_gives_the_same_bytes",
        ),
    ),
}


@pytest.mark.parametrize("number", ISSUES)
def test_every_issue_has_tests_that_exist(number: int) -> None:
    issue, tests = ISSUES[number]
    assert issue
    assert tests
    for test in tests:
        path, _, name = test.partition("::")
        assert name in _functions(_TESTS / path), f"{issue}: there is no test {test}"


def test_the_table_is_whole() -> None:
    """The numbers between the first and the last that are missing are those that are left out."""
    left_out = {4, 9, 11, 14, 17, 20, 22, 24, 26, 31, 38, 42, 47, 50, 58}
    assert set(ISSUES) == set(range(1, 63)) - left_out


def test_only_the_commands_end_a_process() -> None:
    # The command line, and a worker of the factory whose parent is gone.
    allowed = {
        "library/tilewright/__main__.py",
        "library/tilewright/cli/main.py",
        "release/tilewright_release/workers.py",
    }
    found = set()
    for package in ("library", "compiler", "release"):
        for path in sorted((_PACKAGES / package).rglob("*.py")):
            if any(_ends_the_process(node) for node in ast.walk(ast.parse(path.read_text()))):
                found.add(path.relative_to(_PACKAGES).as_posix())
    assert found <= allowed, found - allowed


def _ends_the_process(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="sys"), attr="exit")):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr="_exit" | "abort")):
            return True
        case ast.Raise(exc=ast.Call(func=ast.Name(id="SystemExit")) | ast.Name(id="SystemExit")):
            return True
        case ast.Call(func=ast.Name(id="exit" | "quit")):
            return True
    return False


@cache
def _functions(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
