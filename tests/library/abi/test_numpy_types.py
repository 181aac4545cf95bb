from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tilewright.abi.dtypes import ALL, DType
from tilewright.abi.numpy_types import from_numpy, to_numpy
from tilewright.errors import ArgumentError


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_element_type_has_a_numpy_dtype(dtype: DType) -> None:
    assert to_numpy(dtype).itemsize == dtype.size_bytes
    assert from_numpy(to_numpy(dtype)) is dtype


def test_dtypes_of_one_width_and_two_c_names_are_one() -> None:
    assert from_numpy(np.dtype(np.longlong)) == from_numpy(np.dtype(np.int64))


@pytest.mark.parametrize("name", ["complex64", ">f4", "O", "M8[s]"])
def test_other_dtypes_are_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match="has no element type; known are bool, int8"):
        from_numpy(np.dtype(name))


def test_importing_the_table_imports_no_numpy() -> None:
    code = "import sys, tilewright.abi.numpy_types; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
