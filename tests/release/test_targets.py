from __future__ import annotations

import pytest

from helpers.small_checkout import ROOT, SmallCheckout
from tilewright.abi.target import Target
from tilewright.errors import FormatError
from tilewright_compiler.toolchain import ptxas_id
from tilewright_release.targets import TargetRow, read_targets


def test_the_table_of_the_project() -> None:
    table = read_targets(ROOT / "prebuilt" / "targets.toml")
    assert table.rows == (
        TargetRow(Target(8, 0), ptxas_id(), 12000),
        TargetRow(Target(9, 0, "a"), ptxas_id(), 12000),
        TargetRow(Target(10, 0, "f"), ptxas_id(), 12080),
        TargetRow(Target(12, 0, "f"), ptxas_id(), 12080),
    )
    assert table.names == ("sm_80", "sm_90a", "sm_100f", "sm_120f", "ptx")
    assert table.min_driver("sm_120f") == 12080
    assert table.min_driver("ptx") == 12000


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"sm_80"        #', '"sm_86"        #', "name is sm_86, for which the compiler makes no"),
        ('"sm_80"        #', '"8.0"        #', "is not of the form sm_NN"),
        ('"sm_80"        #', '"sm_90a"        #', "target names a target twice"),
        ("12.9.86", "13.0.88", "target[0].toolchain is nvidia-cuda-nvcc-cu12-13.0.88"),
        ('version = "7.0"', 'version = "7.1"', "floor.target and version are sm_80 7.1"),
        ("min_driver = 12080", 'driver = "570"', "target[2].min_driver is missing"),
    ],
)
def test_errors_name_the_key(small: SmallCheckout, old: str, new: str, problem: str) -> None:
    small.replace("prebuilt/targets.toml", old, new)
    with pytest.raises(FormatError) as caught:
        read_targets(small.checkout.targets)
    assert str(caught.value).startswith(f"{small.checkout.targets}: ")
    assert problem in str(caught.value)
