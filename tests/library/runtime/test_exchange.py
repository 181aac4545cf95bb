"""Arrays read through DLPack's C exchange API: addresses, streams, and what goes the older way."""

from __future__ import annotations

from helpers.launches import Run

_EXPORTERS = """
from helpers.exchange import CPU, COMPLEX, Exporter, offer
class First(Exporter): pass
class Second(Exporter): pass
"""


def test_arrays_are_read_and_launched_on_their_librarys_stream(run: Run) -> None:
    done = run(
        _EXPORTERS
        + """
offer(First, stream=96)
x, y, out = arrays()
add[1](First(x), First(y, byte_offset=256), First(out), 64, BLOCK=64)
print(x.address, y.address, out.address)
"""
    )
    (line,) = done.lines("launch")
    assert "stream=96" in line
    assert not done.lines("record", "wait")
    packed = bytes.fromhex(line.partition("packed=")[2])
    addresses = [int.from_bytes(packed[i : i + 8], "little") for i in (0, 8, 16)]
    assert addresses == [int(word) for word in done.output.split()]


def test_the_stream_is_asked_for_at_every_launch(run: Run) -> None:
    done = run(
        _EXPORTERS
        + """
streams = iter([96, 1, 112])
offer(First, stream=lambda: next(streams))
arguments = [First(array) for array in arrays()]
for _ in range(3):
    add[1](*arguments, 64, BLOCK=64)
"""
    )
    # 1 is the legacy stream, which we write as 0.
    assert [line.split()[5] for line in done.lines("launch")] == [
        "stream=96",
        "stream=0",
        "stream=112",
    ]


def test_other_streams_in_the_launch_are_ordered_by_events(run: Run) -> None:
    done = run(
        _EXPORTERS
        + """
offer(First, stream=96)
offer(Second, stream=112)
x, y, out = arrays()
add[1](First(x), Second(y), First(out), 64, BLOCK=64)
add[1](First(x), First(y), First(out), 64, BLOCK=64, stream=48)
add[1](x, First(y), First(out), 64, BLOCK=64)
"""
    )
    order = [line.split()[:2] for line in done.lines("record", "wait", "launch")]

    def ordered(own: int, other: int) -> list[list[str]]:
        def wait(first: int, then: int) -> list[list[str]]:
            return [["record", f"stream={first}"], ["wait", f"stream={then}"]]

        return [*wait(other, own), ["launch", "add"], *wait(own, other)]

    assert order == ordered(96, 112) + ordered(48, 96) + ordered(96, 0)


def test_what_the_api_does_not_give_goes_the_older_way(run: Run) -> None:
    done = run(
        _EXPORTERS
        + """
class Both(Exporter):
    def __dlpack_device__(self): return self.device_type, 0
    def __dlpack__(self, *, stream=None): return self.array.__dlpack__(stream=stream)
offer(Both, stream=96)
x, y, out = arrays()
add[1](Both(x, bits=0), y, out, 64, BLOCK=64)       # the table's function fails
refused(errors.ArgumentError, lambda: add[1](First(x), y, out, 64, BLOCK=64))
offer(Second)
refused(errors.ArgumentError, lambda: add[1](Second(x, code=COMPLEX), y, out, 64, BLOCK=64))
refused(errors.ArgumentError, lambda: add[1](Both(x, device_type=CPU), y, out, 64, BLOCK=64))
refused(errors.ArgumentError, lambda: add[1](Second(x), y, arrays(device=1)[0], 64, BLOCK=64))
""",
        FAKE_CUDA_DEVICES="9.0,9.0",
    )
    (line,) = done.lines("launch")
    assert "stream=0" in line
    no_api, wrong_dtype, on_host, two_devices = done.output.splitlines()
    assert "argument 'x' is of <class" in no_api
    assert "argument 'x' is of <class" in wrong_dtype
    assert "'x' is on the host and 'y' is on device 0" in on_host
    assert "'out' is on device 1, but 'x' is on device 0" in two_devices


def test_tables_of_other_versions_are_left_alone_or_searched(run: Run) -> None:
    done = run(
        _EXPORTERS
        + """
old = offer(First, stream=96)
offer(First, stream=112, version=2, previous=old)      # a newer table that names the older one
x, y, out = arrays()
add[1](First(x), y, out, 64, BLOCK=64)
offer(Second, version=2)
refused(errors.ArgumentError, lambda: add[1](Second(x), y, out, 64, BLOCK=64))
class Third(Exporter): pass
offer(Third, stream=128, attribute="__c_dlpack_exchange_api__")
add[1](Third(x), y, out, 64, BLOCK=64)
class Fourth(Exporter): __dlpack_c_exchange_api__ = 1234
refused(errors.ArgumentError, lambda: add[1](Fourth(x), y, out, 64, BLOCK=64))
"""
    )
    assert [line.split()[5] for line in done.lines("launch")] == ["stream=96", "stream=128"]
    assert done.output.count("ArgumentError") == 2


def test_a_library_that_does_not_tell_its_stream_is_an_error(run: Run) -> None:
    done = run(
        _EXPORTERS
        + """
offer(First, stream=-1)
x, y, out = arrays()
refused(errors.ArgumentError, lambda: add[1](First(x), y, out, 64, BLOCK=64))
add[1](x, y, out, 64, BLOCK=64)
"""
    )
    assert "did not tell its current stream" in done.output
    assert len(done.lines("launch")) == 1


def test_torchs_stream_comes_before_another_librarys(run: Run) -> None:
    done = run(
        _EXPORTERS
        + """
torch = types.ModuleType("torch")
class Tensor(Exporter): pass
torch.Tensor = Tensor
torch._C = types.SimpleNamespace(_dlpack_exchange_api=None)
sys.modules["torch"] = torch
offer(First, stream=96)
offer(Tensor, stream=112)
class Parameter(Tensor): pass
x, y, out = arrays()
add[1](First(x), Parameter(y), Tensor(out), 64, BLOCK=64)
"""
    )
    order = [line.split()[:2] for line in done.lines("record", "wait", "launch")]
    assert order[:3] == [["record", "stream=96"], ["wait", "stream=112"], ["launch", "add"]]
    assert "stream=112" in done.lines("launch")[0]


def test_a_table_that_is_not_torchs_own_does_not_tell_torchs_stream(run: Run) -> None:
    done = run(
        _EXPORTERS
        + """
torch = types.ModuleType("torch")
class Tensor(Exporter): pass
torch.Tensor = Tensor
torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 96 + device)
sys.modules["torch"] = torch
offer(Tensor, stream=0)
tensors = [Tensor(array) for array in arrays()]
add[1](*tensors, 64, BLOCK=64)
print([tensor.reads for tensor in tensors])
"""
    )
    assert done.output.strip() == "[[1], [1], [1]]"
    assert "stream=96" in done.lines("launch")[0]
