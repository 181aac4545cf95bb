"""Kernels that are public for Triton, written anew: right on both sides, and sound machine code."""

from __future__ import annotations

import pytest

from helpers.gpu import missing_gpu, requires_gpu
from helpers.ported.cases import CASES
from helpers.recorded_launches import recorded
from tilewright_compiler.capabilities import TARGETS
from tilewright_compiler.pipeline import compile_signature


def test_there_are_many_kinds() -> None:
    assert len({case.kernel for case in CASES.values()}) >= 20


@pytest.mark.parametrize(
    "on_device",
    [
        pytest.param(False, id="host"),
        pytest.param(True, id="gpu", marks=[pytest.mark.gpu, requires_gpu()]),
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_results(name: str, on_device: bool) -> None:
    case = CASES[name]
    is_hopper = on_device and missing_gpu((9, 0)) is None
    case.check(case.run(on_device=on_device), on_hopper=is_hopper)


@pytest.mark.parametrize("name", CASES)
def test_machine_code(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    (launch,) = recorded(monkeypatch, lambda: case.run(on_device=False))
    assert launch.signature.specialization == "fast"
    compiled = compile_signature(launch.kernel, launch.signature, targets=list(TARGETS))
    for key, cubin in compiled.cubins.items():
        assert (cubin.spill_bytes, cubin.warnings) == (0, ()), key


def test_a_wrong_result_is_told() -> None:
    case = CASES["softmax"]
    found = case.run(on_device=False)
    found["out"][3, 5] += 1e-3
    with pytest.raises(AssertionError, match="Mismatched elements: 1 /"):
        case.check(found)
