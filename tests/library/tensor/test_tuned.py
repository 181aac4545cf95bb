"""Operations take what a table says was fastest, where that can serve, and say so where not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers.bundles import write_bundle
from helpers.closed_folder import closed_folder
from tilewright import settings
from tilewright.abi.dtypes import bfloat16, float32, int64
from tilewright.abi.signature import Constexpr, KernelSignature, declared
from tilewright.abi.tuned import FILE_NAME, Choice, Line, TunedTable, to_json
from tilewright.errors import LaunchError
from tilewright.kernels.matmul import matmul as matmul_kernel
from tilewright.language.kernel import Kernel
from tilewright.runtime import store
from tilewright.runtime.geometry import row_major
from tilewright.runtime.launcher import CODES
from tilewright.tensor import tuned
from tilewright.tensor.attention_launches import OUT, Attention, Heads, K, Q, V, launches
from tilewright.tensor.attention_window import window_of
from tilewright.tensor.block_configurations import BLOCK_FORMS
from tilewright.tensor.geometry import Geometry
from tilewright.tensor.launches import forget_plans
from tilewright.tensor.matmul import matmul
from tilewright.tensor.matmul_launches import Matrices, Product, plan_steps
from tilewright.tensor.tuned import trying

CASE = "bf16 bf16 ieee kn"
DECLARED = Choice("matmul", (64, 64, 64, 4, 4))


def _of_the_bundle(kernel: str, parts: int = 1) -> Choice:
    """Return the last form of a kernel that the bundle has for this case, as a choice."""
    forms = [form for form in BLOCK_FORMS[bfloat16, "ieee"] if form.kernel == kernel]
    form = [form for form in forms if ("k", "n") in form.units][-1]
    m, n, k, warps, stages = astuple(form.tiles)
    return Choice(kernel, (m, n, k, warps, stages), parts)


BLOCKS, PARTS = _of_the_bundle("blocks"), _of_the_bundle("parts", parts=4)
UNDECLARED = Choice("matmul", (32, 64, 64, 4, 3))


class Launch:
    """What a plan would launch."""

    def __init__(
        self,
        kernel: Kernel,
        _grid: object,
        _pointers: object,
        tail: tuple[Any, ...],
        options: dict[str, Any],
        *,
        flags: tuple[int, ...] = (),  # noqa: ARG002  # a launch has them
    ) -> None:
        self.kernel = kernel
        self.tail = tail
        self.options = options


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Be a Hopper device of 132 processors without a compiler, with that bundle and cache."""
    folder = tmp_path / "bundle"
    write_bundle(folder, {})
    monkeypatch.setenv("TILEWRIGHT_BUNDLE_PATH", str(folder))
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILEWRIGHT_JIT", "off")
    monkeypatch.setattr(tuned, "device_of", lambda _index: SimpleNamespace(kind="90-132"))
    for family in ("matmul", "attention"):
        name = f"tilewright.tensor.{family}_launches.copies_blocks"
        monkeypatch.setattr(name, lambda device: device is not None)
    for module in ("matmul", "block", "attention"):
        monkeypatch.setattr(f"tilewright.tensor.{module}_launches.PlannedLaunch", Launch)
    monkeypatch.setattr("tilewright.tensor.attention_launches.processors", lambda _device: 132)
    _forget()
    yield folder
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    settings.settings.cache_clear()
    store.bundles.cache_clear()
    tuned.forget_tables()


def _table(*lines: Line, device: str = "90-132", family: str = "matmul") -> TunedTable:
    return TunedTable(family, device, "a GPU", 13000, "2026-01-31", "0.1.0", "", lines)


def _line(choice: Choice, *sizes: int, case: str = CASE) -> Line:
    return Line(case, sizes or (1, 1024, 1024, 1024), choice, 1.0, 2.0)


def _write(bundle: Path, *tables: TunedTable) -> None:
    (bundle / FILE_NAME).write_text(to_json(tables))
    tuned.forget_tables()


def _planned(m: int = 1024, n: int = 1024, k: int = 1024) -> Choice:
    """Return what a product on device 0 takes, as a choice."""
    a, b, c = (
        Matrices(number, _on_device(shape), (shape[1], 1))
        for number, shape in enumerate(((m, k), (k, n), (m, n)))
    )
    product = Product((m, n, k), a, b, c, None, None, None, "ieee", is_active=False)
    return _choice(plan_steps((), product).steps[-1])


def _on_device(shape: tuple[int, ...]) -> Geometry:
    return Geometry(shape, row_major(shape), CODES[bfloat16], is_aligned=True, device=0)


def _choice(launch: object) -> Choice:
    assert isinstance(launch, Launch)
    values = launch.options
    depth = values.get("BLOCK_K", values.get("BLOCK_D", 0))
    extents = (values["BLOCK_M"], values["BLOCK_N"], depth)
    parts = launch.tail[-1] if launch.kernel.name == "matmul_parts" else 1
    name = launch.kernel.name
    short = name if name in ("matmul", "attention") else name.removeprefix("matmul_")
    return Choice(short, (*extents, values["num_warps"], values["num_stages"]), parts)


@pytest.mark.parametrize("choice", [DECLARED, BLOCKS, PARTS], ids=str)
def test_the_bundles_table_decides(bundle: Path, choice: Choice) -> None:
    _write(bundle, _table(_line(choice)))
    assert _planned() == choice
    assert _planned(1100, 1008, 1040) == choice


def test_without_a_line_the_model_decides(bundle: Path) -> None:
    usual = _planned()
    _write(bundle, _table(_line(DECLARED, case="bf16 bf16 ieee kk"), _line(DECLARED, 1, 1, 1, 1)))
    assert _planned() == usual != DECLARED


def test_without_a_gain_the_model_decides(bundle: Path) -> None:
    usual = _planned()
    _write(bundle, _table(_line(DECLARED)._replace(model_us=1.01)))
    assert _planned() == usual
    _write(bundle, _table(_line(DECLARED)._replace(model_us=1.03)))
    assert _planned() == DECLARED
    with trying("matmul", None):
        assert _planned() == usual


def test_the_users_table_comes_first(bundle: Path) -> None:
    _write(bundle, _table(_line(DECLARED), _line(DECLARED, 1, 4096, 4096, 4096)))
    own = tuned.user_file("90-132", "matmul")
    assert own is not None
    own.parent.mkdir(parents=True)
    own.write_text(to_json([_table(_line(PARTS))]))
    tuned.forget_tables()
    assert _planned() == PARTS
    assert _planned(4096, 4096, 4096) == DECLARED


def test_a_device_without_a_table_takes_the_nearest(bundle: Path) -> None:
    other = _table(_line(BLOCKS), device="80-108")
    _write(bundle, other, _table(_line(PARTS), device="90-114"))
    assert _planned() == PARTS


@pytest.mark.parametrize("text", ["", "{", '{"tables": [{"schema": 9}]}', "\x00" * 10])
def test_a_damaged_table_is_none_and_is_told_of(
    bundle: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    usual = _planned()
    (bundle / FILE_NAME).write_text(text)
    tuned.forget_tables()
    with caplog.at_level(logging.WARNING):
        assert _planned() == usual
    assert "tuned table is not used" in caplog.text
    assert str(bundle / FILE_NAME) in caplog.text


def test_a_choice_in_no_bundle_is_passed_over_with_a_reason(
    bundle: Path, caplog: pytest.LogCaptureFixture
) -> None:
    usual = _planned()
    _write(bundle, _table(_line(UNDECLARED)))
    with caplog.at_level(logging.INFO):
        assert _planned() == usual
    assert "no bundle has its binary, and no compiler may make it" in caplog.text


def _signature(choice: Choice) -> KernelSignature:
    m, n, k, warps, stages = choice.tiles
    chosen: dict[str, int | str] = {"A_UNIT": "k", "B_UNIT": "n", "PRECISION": "ieee"}
    chosen |= {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
    pointers = ("a", "b", "c", "bias", "gate", "residual")
    parameters = {
        p.name: Constexpr(chosen[p.name])
        if p.is_constexpr
        else (bfloat16,)
        if p.name in pointers
        else float32
        if p.name == "alpha"
        else int64
        for p in matmul_kernel.parameters
    }
    return declared(
        parameters,
        rule=matmul_kernel.rule,
        specialization="fast",
        num_warps=warps,
        num_stages=stages,
    )


def test_a_choice_that_a_folder_of_candidates_has_is_taken(bundle: Path) -> None:
    write_bundle(bundle, {matmul_kernel: [_signature(UNDECLARED)]})
    store.bundles.cache_clear()
    _write(bundle, _table(_line(UNDECLARED)))
    assert _planned() == UNDECLARED


def test_with_a_compiler_any_choice_is_taken(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_JIT", "on")
    settings.settings.cache_clear()
    _write(bundle, _table(_line(UNDECLARED)))
    assert _planned() == UNDECLARED


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (Choice("turbo", (64, 64, 64, 4, 4)), "there is no kernel 'turbo'"),
        (BLOCKS._replace(copied=(0, 0)), "is not copied"),
    ],
)
def test_a_choice_that_cannot_serve_is_passed_over(
    bundle: Path, choice: Choice, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    usual = _planned()
    _write(bundle, _table(_line(choice)))
    with caplog.at_level(logging.INFO):
        assert _planned() == usual
    assert reason in caplog.text


@pytest.mark.parametrize(
    "choice",
    [Choice("attention", (64, 64, 64, 4, 2)), Choice("attention_blocks", (128, 128, 64, 8, 2))],
    ids=str,
)
def test_attention_follows_its_table(bundle: Path, choice: Choice) -> None:
    line = _line(choice, 8, 256, 256, case="bf16 ieee 64 causal")
    _write(bundle, _table(line, family="attention"))
    geometry = _on_device((8, 256, 64))
    q, k, v, out = (Heads(x, geometry, geometry.strides) for x in (Q, K, V, OUT))
    problem = Attention(
        (), (256, 256, 64), 8, 8, q, k, v, None, out, None,
        window=window_of((None, None), causal=True, queries=256, keys=256), fits_blocks=True,
        precision="ieee",
    )  # fmt: skip
    (launch,) = launches(problem)
    assert _choice(launch) == choice


def test_a_trial_takes_one_choice_everywhere_and_tells_what_was_asked() -> None:
    a = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 5
    choice = Choice("matmul", (32, 64, 16, 4, 3))
    with trying("matmul", choice) as asked:
        result = matmul(a, a)
    assert asked == [("f32 f32 ieee kn", (1, 64, 64, 64))]
    assert isinstance(result, np.ndarray)
    assert np.array_equal(result, a @ a)
    turbo = Choice("turbo", (1, 1, 1, 1, 1))
    with pytest.raises(LaunchError, match="cannot serve f32 f32"), trying("matmul", turbo):
        matmul(a, a)
    forget_plans()
    again = matmul(a, a)
    assert isinstance(again, np.ndarray)
    assert np.array_equal(again, a @ a)


def test_a_table_below_a_closed_home_is_none_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    (home / "tuned").mkdir(parents=True)
    (home / "tuned" / "matmul.json").write_text("{")
    with closed_folder(home):
        assert tuned._read(home / "tuned" / "matmul.json") == ()
    assert not caplog.records
    tuned.forget_tables()
    assert tuned._read(home / "tuned" / "matmul.json") == ()
    assert "tuned table is not used" in caplog.text
    tuned.forget_tables()
