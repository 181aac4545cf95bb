"""The launch ABI: how arguments become the bytes of a kernel's parameter buffer, as data.

A compiled kernel carries a `LaunchAbi`; the launcher packs what it says and nothing else, so a
wheel of one version can be launched by any runtime that reads the same `ABI_VERSION`. Its parts
exist from the first wheel although some come into use later: adding a parameter kind afterwards
would orphan every wheel.
"""

from __future__ import annotations

from typing import Any, Literal

from tilewright.abi.dtypes import BY_NAME, DType, int64
from tilewright.abi.signature import KernelSignature, Pointer
from tilewright.errors import FormatError
from tilewright.lazy_dataclass import dataclass

ABI_VERSION = 1

ParameterKind = Literal["pointer", "scalar", "grid", "tensor_map", "workspace"]
GridKind = Literal["user", "persistent"]
MapRounding = Literal["", "tf32"]


@dataclass(frozen=True, slots=True)
class TensorMapSpec:
    """How a TMA tensor map is built on the host: expressions name launch arguments.

    With a `rounding`, loads round f32 to tf32 on their way.
    """

    pointer: str
    dtype: DType
    sizes: tuple[str, ...]
    strides: tuple[str, ...]
    box: tuple[int, ...]
    swizzle_bytes: Literal[0, 32, 64, 128] = 0
    rounding: MapRounding = ""


@dataclass(frozen=True, slots=True)
class AbiParameter:
    """One parameter of the compiled entry.

    - `pointer`, `scalar`: the launch argument called `name`;
    - `grid`: the logical grid size along `axis`, for persistent kernels;
    - `tensor_map`: 128 bytes, aligned to 128, encoded from `tensor_map`;
    - `workspace`: a pointer to `size_expression` bytes allocated on the stream, zeroed when
      `zeroed`.
    """

    kind: ParameterKind
    name: str
    dtype: DType = int64
    axis: int = 0
    tensor_map: TensorMapSpec | None = None
    size_expression: str = ""
    zeroed: bool = False

    @property
    def size_bytes(self) -> int:
        """Bytes in the parameter buffer; alignment equals the size (tensor maps: 128)."""
        if self.kind == "tensor_map":
            return 128
        return 8 if self.kind in ("pointer", "workspace") else self.dtype.size_bytes


@dataclass(frozen=True, slots=True)
class LaunchAbi:
    """Everything that a launch must know beyond the cubin itself.

    `writes` names the pointer parameters that the kernel stores to; `tma_ok` is an expression over
    launch arguments that must be true for this entry to be launched, empty for always. With `waits`
    the kernel waits by itself for those before it, so that its launch may begin while they end.
    """

    entry: str
    parameters: tuple[AbiParameter, ...]
    num_threads: int
    shared_bytes: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    grid_kind: GridKind = "user"
    tma_ok: str = ""
    writes: tuple[str, ...] = ()
    waits: bool = False

    def offsets(self) -> tuple[int, ...]:
        """Byte offset of each parameter: natural alignment, as CUDA lays out `.param` space."""
        result: list[int] = []
        offset = 0
        for parameter in self.parameters:
            size = parameter.size_bytes
            offset = -(-offset // size) * size
            result.append(offset)
            offset += size
        return tuple(result)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for the manifest; absent keys mean the default."""
        data: dict[str, Any] = {
            "entry": self.entry,
            "threads": self.num_threads,
            "shared": self.shared_bytes,
            "parameters": [_parameter_to_json(p) for p in self.parameters],
        }
        if self.cluster != (1, 1, 1):
            data["cluster"] = list(self.cluster)
        if self.grid_kind != "user":
            data["grid"] = self.grid_kind
        if self.tma_ok:
            data["tma_ok"] = self.tma_ok
        if self.writes:
            data["writes"] = list(self.writes)
        return data

    @staticmethod
    def from_json(data: dict[str, Any]) -> LaunchAbi:
        """Read what `to_json` wrote; raises FormatError when a field is missing or wrong."""
        try:
            return LaunchAbi(
                entry=str(data["entry"]),
                parameters=tuple(_parameter_from_json(p) for p in data["parameters"]),
                num_threads=int(data["threads"]),
                shared_bytes=int(data["shared"]),
                cluster=tuple(data.get("cluster", (1, 1, 1))),
                grid_kind=data.get("grid", "user"),
                tma_ok=data.get("tma_ok", ""),
                writes=tuple(data.get("writes", ())),
            )
        except (KeyError, TypeError, ValueError) as error:
            msg = f"launch ABI in the manifest is malformed: {error!r} in {data!r}"
            raise FormatError(msg) from error


def launch_abi(
    signature: KernelSignature,
    *,
    entry: str,
    shared_bytes: int,
    writes: tuple[str, ...],
    added: tuple[AbiParameter, ...] = (),
    added_warps: int = 0,
    grid_kind: GridKind = "user",
    tma_ok: str = "",
) -> LaunchAbi:
    """Return the ABI of a kernel that takes its run-time arguments, in order, and `added` ones.

    `added_warps` are those beside the warps that the signature asks for.
    """
    return LaunchAbi(
        entry=entry,
        parameters=(
            *(
                AbiParameter("pointer" if isinstance(p, Pointer) else "scalar", name, p.dtype)
                for name, p in signature.runtime
            ),
            *added,
        ),
        num_threads=32 * (signature.num_warps + added_warps),
        shared_bytes=shared_bytes,
        grid_kind=grid_kind,
        tma_ok=tma_ok,
        writes=writes,
    )


def _parameter_to_json(parameter: AbiParameter) -> dict[str, Any] | str:
    # Most are sizes and strides, and a manifest has tens of thousands of them.
    if parameter == AbiParameter("scalar", parameter.name):
        return parameter.name
    data: dict[str, Any] = {
        "kind": parameter.kind,
        "name": parameter.name,
        "dtype": parameter.dtype.name,
    }
    if parameter.axis:
        data["axis"] = parameter.axis
    if parameter.size_expression:
        data["size"] = parameter.size_expression
    if parameter.zeroed:
        data["zeroed"] = True
    if parameter.tensor_map is not None:
        tensor_map = parameter.tensor_map
        data["tensor_map"] = {
            "pointer": tensor_map.pointer,
            "dtype": tensor_map.dtype.name,
            "sizes": list(tensor_map.sizes),
            "strides": list(tensor_map.strides),
            "box": list(tensor_map.box),
            "swizzle": tensor_map.swizzle_bytes,
        }
        if tensor_map.rounding:
            data["tensor_map"]["rounding"] = tensor_map.rounding
    return data


def _parameter_from_json(data: dict[str, Any] | str) -> AbiParameter:
    if isinstance(data, str):
        return AbiParameter("scalar", data)
    tensor_map = data.get("tensor_map")
    return AbiParameter(
        kind=data["kind"],
        name=data["name"],
        dtype=BY_NAME[data["dtype"]],
        axis=data.get("axis", 0),
        tensor_map=None
        if tensor_map is None
        else TensorMapSpec(
            pointer=tensor_map["pointer"],
            dtype=BY_NAME[tensor_map["dtype"]],
            sizes=tuple(tensor_map["sizes"]),
            strides=tuple(tensor_map["strides"]),
            box=tuple(tensor_map["box"]),
            swizzle_bytes=tensor_map["swizzle"],
            rounding=tensor_map.get("rounding", ""),
        ),
        size_expression=data.get("size", ""),
        zeroed=data.get("zeroed", False),
    )
