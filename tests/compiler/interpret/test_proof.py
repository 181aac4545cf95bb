"""Proofs are kept by content, and a store that lost or damaged one costs a run and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.mutations import find, with_attributes, without
from helpers.staged_kernels import KERNELS, arguments, optimized, types_of
from tilewright.errors import ScheduleError
from tilewright_compiler.interpret.proof import Launch, proof_key, prove
from tilewright_compiler.ir.core import Module
from tilewright_compiler.schedule.plan import schedule_module
from tilewright_release.stage_cache import StageCache

Kernel = tuple[Module, Module, Launch]


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    values = arguments("product", trips=3, tail=5)
    module = optimized(tmp_path, KERNELS["product"], types_of(values))
    return module, schedule_module(module), Launch((1, 1, 1), values)


def test_a_proof_runs_once(kernel: Kernel, tmp_path: Path) -> None:
    module, schedule, launch = kernel
    store = StageCache(tmp_path, "proofs")
    assert prove(module, schedule, [launch], store=store)
    assert not prove(module, schedule, [launch], store=store)
    assert prove(module, schedule, [launch])  # without a store nothing is kept


def test_a_damaged_proof_is_none(kernel: Kernel, tmp_path: Path) -> None:
    module, schedule, launch = kernel
    store = StageCache(tmp_path, "proofs")
    prove(module, schedule, [launch], store=store)
    (file,) = (path for path in (tmp_path / "proofs").rglob("*") if path.is_file())
    file.write_bytes(file.read_bytes()[:-1])
    assert prove(module, schedule, [launch], store=store)
    store.put(proof_key(schedule, seeds=(0, 1)), b"something else")
    assert prove(module, schedule, [launch], store=store)


def test_what_failed_is_not_kept(kernel: Kernel, tmp_path: Path) -> None:
    module, schedule, launch = kernel
    store = StageCache(tmp_path, "proofs")
    wrong = without(schedule, find(schedule, "barrier")[0])
    for _ in range(2):
        with pytest.raises(ScheduleError):
            prove(module, wrong, [launch], store=store)


def test_other_text_and_other_seeds_are_other_proofs(kernel: Kernel) -> None:
    _, schedule, _ = kernel
    wait = find(schedule, "async_wait")[0]
    stronger = with_attributes(schedule, wait, pending=0)
    keys = {
        proof_key(schedule, seeds=(0, 1)),
        proof_key(schedule, seeds=(0,)),
        proof_key(stronger, seeds=(0, 1)),
    }
    assert len(keys) == 3
    again = Module(schedule.functions, replace(schedule.signature), schedule.attributes)
    assert proof_key(again, seeds=(0, 1)) in keys


def test_arguments_stay_as_they_are(kernel: Kernel) -> None:
    module, schedule, launch = kernel
    before = {
        name: value.copy()
        for name, value in launch.arguments.items()
        if isinstance(value, np.ndarray)
    }
    prove(module, schedule, [launch])
    for name, value in before.items():
        np.testing.assert_array_equal(launch.arguments[name], value)
