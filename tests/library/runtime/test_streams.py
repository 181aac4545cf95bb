"""Which stream a launch goes to, what waits for what, and several devices."""

from __future__ import annotations

from helpers.launches import Run


def test_an_array_of_another_stream_is_waited_for_and_made_to_wait(run: Run) -> None:
    done = run("""
s = stream.Stream()
print(s.handle)
x, y = arrays(2)
(out,) = arrays(1, stream=s)
add[1](x, y, out, 64, BLOCK=64)
add[1](x, y, out, 64, BLOCK=64, stream=s)
del out
s.close()
""")
    handle = done.output.strip()
    calls = [line.split()[:2] for line in done.lines("record", "wait", "launch")]
    # On the legacy stream: the array's stream first, and afterwards it waits for the launch.
    assert calls[:5] == [
        ["record", f"stream={handle}"],
        ["wait", "stream=0"],
        ["launch", "add"],
        ["record", "stream=0"],
        ["wait", f"stream={handle}"],
    ]
    # On the array's own stream: the other arrays belong to the legacy stream.
    assert calls[5:10] == [
        ["record", "stream=0"],
        ["wait", f"stream={handle}"],
        ["launch", "add"],
        ["record", f"stream={handle}"],
        ["wait", "stream=0"],
    ]
    # Its memory goes to the legacy stream, which therefore comes after its work.
    assert calls[10:] == [["record", f"stream={handle}"], ["wait", "stream=0"]]


def test_launches_on_the_legacy_stream_wait_for_nothing(run: Run) -> None:
    done = run("""
x, y, out = arrays()
for stream in (None, 0, 1):
    add[1](x, y, out, 64, BLOCK=64, stream=stream)
""")
    assert len(done.lines("launch")) == 3
    assert not done.lines("record", "wait")


def test_streams_of_other_libraries_are_taken(run: Run) -> None:
    done = run("""
x, y, out = arrays()
class Protocol:
    def __cuda_stream__(self): return 0, 48
class Torch:
    cuda_stream = 64
add[1](x, y, out, 64, BLOCK=64, stream=Protocol())
add[1](x, y, out, 64, BLOCK=64, stream=Torch())
""")
    assert [line.split()[5] for line in done.lines("launch")] == ["stream=48", "stream=64"]


def test_memory_of_a_closed_stream_serves_the_legacy_stream(run: Run) -> None:
    done = run("""
with stream.Stream() as s:
    a = memory.empty(1000, dtypes.float32, stream=s)
    address = a.address
    b = memory.empty(1000, dtypes.float32)
    del a
    c = memory.empty(1000, dtypes.float32)      # the legacy stream gets no block of another
    assert c.address not in (address, b.address)
try:
    s.synchronize()
except errors.DriverError as error:
    print(error)
del s
d = memory.empty(1000, dtypes.float32)
print(d.address == address)
""")
    assert done.output.splitlines() == ["this stream was closed", "True"]


def test_a_stream_lives_as_long_as_its_arrays(run: Run) -> None:
    """They give their memory back in its order, and naming a destroyed stream crashes a driver."""
    done = run("""
with stream.Stream() as s:
    a = memory.empty(1000, dtypes.float32, stream=s)
assert s.is_closed
del s
x, y, out = arrays(3)
add[1](a, y, out, 64, BLOCK=64)
del a
""")
    calls = [line.split()[0] for line in done.lines("launch", "cuStreamDestroy")]
    assert calls == ["launch", "cuStreamDestroy"]


def test_foreign_arrays_bring_their_stream(run: Run) -> None:
    done = run("""
class Foreign:
    def __init__(self, array, **more):
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **more}
class Declared(Foreign):
    __cuda_array_interface__ = None
x, y, out = arrays()
add[1](Declared(x, stream=48), Declared(y, stream=None), Declared(out, stream=1), 64, BLOCK=64)
refused(errors.ArgumentError, lambda: add[1](Declared(x, stream=0), y, out, 64, BLOCK=64))
refused(errors.ArgumentError, lambda: add[1](Declared(x, stream="a"), y, out, 64, BLOCK=64))
refused(errors.ArgumentError, lambda: add[1](Declared(x, typestr="<c8"), y, out, 64, BLOCK=64))
refused(errors.ArgumentError, lambda: add[1](Declared(x, typestr=">f4"), y, out, 64, BLOCK=64))
refused(errors.ArgumentError, lambda: add[1](Declared(x, mask=object()), y, out, 64, BLOCK=64))
refused(errors.ArgumentError, lambda: add[1](Declared(x, data=7), y, out, 64, BLOCK=64))
refused(errors.ArgumentError, lambda: add[1](Declared(x, data=(4096, False)), y, out, 64, BLOCK=64))
locked = Declared(out, data=(out.address, True))
refused(errors.ArgumentError, lambda: add[1](x, y, locked, 64, BLOCK=64))
add[1](Declared(x, data=(x.address, True)), y, out, 64, BLOCK=64)
""")
    order = [line.split()[:2] for line in done.lines("record", "wait", "launch")][:5]
    assert order == [
        ["record", "stream=48"],
        ["wait", "stream=0"],
        ["launch", "add"],
        ["record", "stream=0"],
        ["wait", "stream=48"],
    ]
    messages = (
        "names the stream 0",
        "names the stream 'a'",
        "elements of type '<c8'",
        "elements of type '>f4'",
        "is a masked array",
        "without a valid 'data' pair",
        "is not memory of a CUDA device",
        "is read-only, and the kernel writes to it",
    )
    for line, message in zip(done.output.splitlines(), messages, strict=True):
        assert message in line
    assert len(done.lines("launch")) == 2


def test_dlpack_arrays_are_borrowed_for_the_launch(run: Run) -> None:
    done = run("""
import gc, weakref
class Exporter:
    def __init__(self, array, kind=2):
        self.array, self.kind, self.streams = array, kind, []
    def __dlpack_device__(self):
        return self.kind, self.array.device
    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        return self.array.__dlpack__(stream=stream)
x, y, out = arrays()
e = Exporter(x)
add[1](e, y, out, 64, BLOCK=64)
add[1](e, y, out, 64, BLOCK=64, stream=48)
print(e.streams, sys.getrefcount(x))
refused(errors.ArgumentError, lambda: add[1](Exporter(x, kind=4), y, out, 64, BLOCK=64))
view = memory.as_device_array(e)
print(view.shape, view.strides, view.dtype, view.address == x.address)
capsule = x.__dlpack__()
del view, capsule
gc.collect()
print(sys.getrefcount(x))
""")
    lines = done.output.splitlines()
    assert lines[0] == "[1, 48] 3"
    assert "DLPack type 4" in lines[1]
    assert lines[2] == "(64,) (1,) f32 True"
    assert lines[3] == "3"
    first = [bytes.fromhex(line.partition("packed=")[2])[:8] for line in done.lines("launch")]
    assert first[0] == first[1]


_TORCH = """
torch = types.ModuleType("torch")
class Device: pass
class Tensor:
    def __init__(self, array, dtype="float32", device=0):
        self.array, self.dtype, self.index = array, Dtype.of(dtype), device
    def data_ptr(self): return self.array.address
    def get_device(self): return self.index
class Dtype:
    known = {}
    def __init__(self, name): self.name = name
    def __repr__(self): return "torch." + self.name
    @classmethod
    def of(cls, name): return cls.known.setdefault(name, cls(name))
torch.Tensor = Tensor
torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 96 + 16 * device)
sys.modules["torch"] = torch
"""


def test_torch_tensors_use_torchs_current_stream(run: Run) -> None:
    done = run(
        _TORCH
        + """
x, y, out = arrays()
add[1](Tensor(x), Tensor(y), Tensor(out), 64, BLOCK=64)
add[1](Tensor(x), y, out, 64, BLOCK=64)
add[1](Tensor(x), Tensor(y), Tensor(out), 64, BLOCK=64, stream=48)
refused(errors.ArgumentError, lambda: add[1](Tensor(x, device=-1), y, out, 64, BLOCK=64))
refused(errors.ArgumentError, lambda: add[1](Tensor(x, "complex64"), y, out, 64, BLOCK=64))
refused(errors.ResolveError, lambda: add[1](Tensor(x, "int8"), y, out, 64, BLOCK=64))
"""
    )
    order = [line.split()[:2] for line in done.lines("record", "wait", "launch")]
    assert order == [
        ["launch", "add"],  # all torch: its stream, nothing to wait for
        ["record", "stream=0"],  # ours are on the legacy stream
        ["wait", "stream=96"],
        ["launch", "add"],
        ["record", "stream=96"],
        ["wait", "stream=0"],
        ["record", "stream=96"],  # a stream that was asked for waits for torch's
        ["wait", "stream=48"],
        ["launch", "add"],
        ["record", "stream=48"],
        ["wait", "stream=96"],
    ]
    assert ["stream=96" in line for line in done.lines("launch")] == [True, True, False]
    lines = done.output.splitlines()
    assert "not on a CUDA device" in lines[0]
    assert "torch.complex64" in lines[1]
    assert lines[2].startswith("ResolveError")


def test_each_device_gets_its_own_code_and_context(run: Run) -> None:
    done = run(
        """
a = arrays(device=0)
b = arrays(device=1)
for _ in range(2):
    add[1](*a, 64, BLOCK=64)
    add[1](*b, 64, BLOCK=64)
refused(errors.ArgumentError, lambda: add[1](a[0], b[1], a[2], 64, BLOCK=64))
refused(errors.ArgumentError, lambda: memory.empty(4, dtypes.float32, device=2))
refused(errors.ArgumentError, lambda: memory.empty(4, dtypes.float32, device=-1))
print(add.launcher.misses)
""",
        FAKE_CUDA_DEVICES="9.0,8.6",
    )
    assert [line.split()[1] for line in done.lines("cuLibraryLoadData")] == ["sm_90a", "sm_80"]
    assert [line.split()[6] for line in done.lines("launch")] == ["device=0", "device=1"] * 2
    lines = done.output.splitlines()
    assert "argument 'y' is on device 1, but 'x' is on device 0" in lines[0]
    assert "device 2 does not exist; this machine has 2" in lines[1]
    assert lines[-1] == "2"


def test_events_order_and_time(run: Run) -> None:
    done = run("""
first, last = stream.Event(), stream.Event()
print(first.is_done())
first.record()
last.record(48)
last.hold(64)
last.synchronize()
print(first.elapsed_ms(last), first.is_done())
refused(errors.ArgumentError, lambda: first.elapsed_ms(3))
""")
    assert done.output.splitlines()[:2] == ["False", "1.0 True"]
    assert [line.split()[1] for line in done.lines("record")] == ["stream=0", "stream=48"]
    assert [line.split()[1] for line in done.lines("wait")] == ["stream=64"]


def test_streams_wait_for_each_other_and_are_asked(run: Run) -> None:
    done = run(
        """
a, b = stream.Stream(), stream.Stream(1, priority=-2)
event = a.record()
b.wait(event)
b.wait(a)
print(a.handle, b.handle, a.is_done(), repr(b) == f"<stream {b.handle:#x} of device 1>")
assert a.record(event) is event
refused(errors.ArgumentError, lambda: a.wait(3))
refused(errors.ArgumentError, lambda: stream.Stream(2))
""",
        FAKE_CUDA_DEVICES="9.0,9.0",
    )
    first, second, *rest = done.output.split()[:4]
    assert rest == ["True", "True"]
    created = done.lines("cuStreamCreate")
    assert [line.split()[2:] for line in created] == [
        ["flags=1", "priority=0", "device=0"],
        ["flags=1", "priority=-2", "device=1"],
    ]
    calls = [line.split()[:2] for line in done.lines("record", "wait")][:4]
    assert calls == [["record", f"stream={first}"], ["wait", f"stream={second}"]] * 2
    assert done.output.count("ArgumentError") == 2


def test_a_stream_that_nothing_refers_to_is_closed_without_waiting(run: Run) -> None:
    done = run("""
import weakref
s = stream.Stream()
alive = weakref.ref(s)
array = memory.empty(1000, dtypes.float32, stream=s)
address = array.address
del s
print(alive() is not None)      # the array refers to it
del array
print(alive() is not None, memory.empty(1000, dtypes.float32).address == address)
""")
    assert done.output.split() == ["True", "False", "True"]
    assert len(done.lines("cuStreamDestroy")) == 1
    assert not done.lines("synchronize")


def test_streams_of_other_libraries_are_borrowed(run: Run) -> None:
    done = run("""
class Torch:
    cuda_stream = 64
x, y, out = arrays()
with stream.Stream.external(Torch()) as borrowed:
    add[1](x, y, out, 64, BLOCK=64, stream=borrowed)
    own = stream.Stream()
    own.wait(borrowed)
    print(borrowed.handle, own.handle)
refused(errors.DriverError, lambda: borrowed.handle)
refused(errors.ArgumentError, lambda: stream.Stream.external("s"))
legacy = stream.Stream.external(None)
print(legacy.handle, legacy.is_done())
""")
    lines = done.output.splitlines()
    assert "stream=64" in done.lines("launch")[0]
    assert lines[0].split()[0] == "64"
    assert lines[1].startswith("DriverError this stream was closed")
    assert lines[3] == "0 True"
    assert [line.split()[1] for line in done.lines("cuStreamDestroy")] == [lines[0].split()[1]]


def test_a_stream_of_another_device_or_a_closed_one_is_named(run: Run) -> None:
    done = run(
        """
x, y, out = arrays()
far, gone, dead = stream.Stream(1), stream.Stream(), stream.Stream()
handle = dead.handle
gone.close()
del dead
refused(errors.LaunchError, lambda: add[1](x, y, out, 64, BLOCK=64, stream=far))
refused(errors.LaunchError, lambda: add[1](x, y, out, 64, BLOCK=64, stream=handle))
refused(errors.DriverError, lambda: add[1](x, y, out, 64, BLOCK=64, stream=gone))
print(out.version)
""",
        FAKE_CUDA_DEVICES="9.0,9.0",
    )
    far, handle, gone, version = done.output.splitlines()
    assert "for a launch on device 0: it is closed, or of another device" in far
    assert "it is closed, or of another device" in handle
    assert "this stream was closed" in gone
    assert version == "0"
    assert not done.lines("launch")
