"""Arrays of other libraries seen as ours: read in one call, launched on their library's stream."""

from __future__ import annotations

import pytest

from helpers.launches import Run

_EXPORTERS = """
import gc
from helpers.exchange import CPU, COMPLEX, Exporter, offer
from tilewright.runtime.memory import DeviceArray, as_device_array
from tilewright.tensor.geometry import Geometry, new_array, operands
class First(Exporter): pass
class Second(Exporter): pass
"""

# A torch whose tensors offer the table that torch's own code made.
_TORCH = (
    _EXPORTERS
    + """
torch = types.ModuleType("torch")
torch.strided, torch.sparse_coo = "torch.strided", "torch.sparse_coo"
class Tensor(Exporter):
    is_cuda, layout, dtype = True, torch.strided, "torch.float32"
    requires_grad = is_negative = is_conjugate = False
    device = property(lambda self: "cuda:0" if self.is_cuda else "cpu")
    def stride(self): return (self.strides or self.array.strides)
    def data_ptr(self): return self.array.address
    def get_device(self): return self.array.device
    def is_neg(self): return self.is_negative
    def is_conj(self): return self.is_conjugate
    def having(self, **attributes):
        vars(self).update(attributes)
        return self
torch.Tensor = Tensor
torch._C = types.SimpleNamespace(
    _dlpack_exchange_api=None, _cuda_getCurrentRawStream=lambda device: 112 + device
)
sys.modules["torch"] = torch
"""
)


def test_an_array_is_read_whole_and_kept_alive(run: Run) -> None:
    run(
        _EXPORTERS
        + """
offer(First)
array = memory.empty((3, 8), dtypes.float32)
view = as_device_array(First(array, shape=(3, 4), strides=(8, 2), byte_offset=64))
assert (view.shape, view.strides, view.dtype, view.device) == ((3, 4), (8, 2), dtypes.float32, 0)
assert view.address == array.address and view.size_bytes == 4 * 23
assert view.geometry == Geometry((3, 4), (8, 2), view.code, True, 0)
assert view.geometry is view.geometry and type(view.geometry) is Geometry
assert not view.is_read_only
assert sys.getrefcount(array) == 3        # the exporter, which the view keeps
address = array.address
del array
gc.collect()
assert memory.empty((3, 8), dtypes.float32).address != address
empty = as_device_array(First(memory.empty(4, dtypes.float32), shape=(0, 4), strides=(4, 1)))
assert empty.shape == (0, 4) and empty.size_bytes == 0
offset = as_device_array(First(memory.empty(64, dtypes.float32)[1:]))
assert not offset.geometry.is_aligned
"""
    )


def test_work_on_a_view_goes_to_the_stream_that_is_current_then(run: Run) -> None:
    done = run(
        _EXPORTERS
        + """
current = 96
offer(First, stream=lambda: current)
views = [as_device_array(First(array)) for array in arrays()]
add[1](*views, 64, BLOCK=64)
current = 112
add[1](views[0][:64], *views[1:], 64, BLOCK=64)
native.fill(views[0], 0)
native.copy(views[0], views[1])
views[0].copy_from(np.zeros(64, np.float32))
views[0].numpy()
print(views[0].stream_handle, views[0].__cuda_array_interface__["stream"])
views[0].__dlpack__(stream=112)
add[1](*views, 64, BLOCK=64, stream=48)
"""
    )
    assert not any("stream=0" in line for line in done.log if not line.startswith("cuMem"))
    assert [line.split()[5] for line in done.lines("launch")] == [
        "stream=96",
        "stream=112",
        "stream=48",
    ]
    assert done.output.split() == ["112", "112"]
    # Only a launch elsewhere is ordered with that stream.
    order = [line.split()[:2] for line in done.lines("record", "wait")]
    assert order == [
        ["record", "stream=112"],
        ["wait", "stream=48"],
        ["record", "stream=48"],
        ["wait", "stream=112"],
    ]


def test_views_and_arrays_of_ours_launch_as_the_library_does(run: Run) -> None:
    done = run(
        _EXPORTERS
        + """
offer(First, stream=96)
x, y, out = arrays()
add[1](First(x), y, out, 64, BLOCK=64)
add[1](as_device_array(First(x)), y, out, 64, BLOCK=64)
"""
    )
    lines = [line.split()[:2] for line in done.lines("record", "wait", "launch")]
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]
    assert "stream=96" in done.lines("launch")[1]


def test_results_belong_to_the_stream_of_their_launch(run: Run) -> None:
    done = run(
        _TORCH
        + """
from tilewright.runtime.graph import capture
offer(First, stream=96)
offer(Tensor, stream=112)
x, y, z = arrays()
geometry = x.geometry
def stream_of(**values):
    return new_array(geometry, operands(**values)[0]).stream_handle
print(stream_of(a=x, out=None), stream_of(a=x, b=First(y)), stream_of(a=First(x), b=Tensor(y)))
with capture() as graph:
    print(stream_of(a=Tensor(x)) == graph.stream.handle)
arrays, geometries = operands(a=First(x), b=y, c=None, d=np.zeros((2, 3), np.float32))
print(arrays[1] is y, arrays[2], geometries[2], geometries[3].device, geometries[3].strides)
print(geometries[0] == geometries[1] == x.geometry)
y.free()
refused(errors.ArgumentError, lambda: operands(a=x, b=y))
refused(errors.ArgumentError, lambda: operands(weights="no array"))
"""
    )
    *lines, freed, no_array = done.output.splitlines()
    assert lines == ["0 96 112", "True", "True None None None (3, 1)", "True"]
    assert "was freed" in freed
    assert "weights is of str" in no_array


def test_another_librarys_capture_gets_memory_that_outlives_it(run: Run) -> None:
    # Odd handles are being captured.
    done = run(
        _EXPORTERS
        + """
current = 97
offer(First, stream=lambda: current)
x = memory.empty(64, dtypes.float32)
native.pool_set_limit(0, 0)
first = new_array(x.geometry, [as_device_array(First(x))])
address = first.address
del first                           # not by a node of the graph
print(native.pool_trim(0), new_array(x.geometry, [as_device_array(First(x))]).address == address)
"""
    )
    assert done.output.split() == ["0", "True"]
    memory = done.lines("cuMem")
    assert len(memory) > 1
    assert not any("stream=97" in line for line in memory)


def test_what_the_api_does_not_give_goes_the_older_way(run: Run) -> None:
    done = run(
        _EXPORTERS
        + """
class Both(Exporter):
    def __dlpack_device__(self): return self.device_type, 0
    def __dlpack__(self, *, stream=None):
        print("capsule", stream)
        return self.array.__dlpack__(stream=stream)
offer(Both, stream=96)
offer(First)
x = memory.empty(64, dtypes.float32)
assert as_device_array(Both(x, bits=0)).stream_handle == 0
refused(errors.ArgumentError, lambda: as_device_array(Both(x, device_type=CPU)))
refused(errors.ArgumentError, lambda: as_device_array(First(x, code=COMPLEX)))
refused(errors.ArgumentError, lambda: as_device_array(First(x, strides=(-1,))))
"""
    )
    capsule, on_host, *others = done.output.splitlines()
    assert capsule == "capsule 1"
    assert "DLPack device of type 1" in on_host
    assert len(others) == 2
    assert all("a device array is needed" in line for line in others)


def test_torchs_tensors_are_borrowed_without_a_capsule(run: Run) -> None:
    done = run(
        _TORCH
        + """
offer(Tensor, stream=96)
class Parameter(Tensor): pass
x = memory.empty((4, 16), dtypes.float32)
for tensor in (Tensor(x), Parameter(x)):
    view = as_device_array(tensor)
    print(view.shape, view.strides, view.address == x.address, view.stream_handle)
"""
    )
    assert set(done.output.splitlines()) == {"(4, 16) (16, 1) True 96"}


@pytest.mark.parametrize("has_table", [True, False])
def test_tensors_that_hold_no_plain_values_are_refused(run: Run, has_table: bool) -> None:
    done = run(
        _TORCH
        + ("offer(Tensor, stream=96)" if has_table else "")
        + """
x = memory.empty((4, 16), dtypes.float32)
def refuse(**attributes):
    refused(
        errors.ArgumentError,
        lambda: as_device_array(
            Tensor(x, bits=attributes.pop("bits", 32)).having(**attributes), name="weights"
        ),
    )
refuse(requires_grad=True)
refuse(is_negative=True)
refuse(is_conjugate=True, bits=0)
refuse(layout=torch.sparse_coo, bits=0)
refuse(is_cuda=False, bits=0)
refuse(dtype="torch.complex64", bits=0)
"""
    )
    words = (
        "requires a gradient",
        "conjugates or negatives",
        "conjugates or negatives",
        "layout torch.sparse_coo",
        "is a torch tensor on cpu, not on a CUDA device",
        "torch.complex64",
    )
    for line, word in zip(done.output.splitlines(), words, strict=True):
        assert line.startswith("ArgumentError weights ")
        assert word in line


def test_an_older_torch_is_read_by_its_attributes(run: Run) -> None:
    done = run(
        _TORCH
        + """
tensors = [Tensor(array, shape=(64,)) for array in arrays()]
views = [as_device_array(tensor) for tensor in tensors]
print(views[0].shape, views[0].strides, views[0].stream_handle)
add[1](*views, 64, BLOCK=64)
add[1](tensors[0], *views[1:], 64, BLOCK=64)
"""
    )
    assert done.output.strip() == "(64,) (1,) 112"
    assert ["stream=112" in line for line in done.lines("launch")] == [True, True]
    assert not done.lines("record", "wait")
