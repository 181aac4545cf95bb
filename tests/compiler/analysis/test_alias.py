from __future__ import annotations

from tilewright_compiler.analysis.alias import (
    READING,
    WRITING,
    arguments_of,
    pointer_roots,
    written_arguments,
)
from tilewright_compiler.ir.core import Module
from tilewright_compiler.ir.parser import parse_module

HINTS = '{cache = "", eviction = ""}'
TEXT = f"""
    signature (a:*f32, b:*f32, c:*f32, d:*f32, n:i64) general num_warps=4 num_stages=3
    kernel @k(%a: ptr<f32>, %b: ptr<f32>, %c: ptr<f32>, %d: ptr<f32>, %n: i64) {{
      %zero = constant {{value = 0}} : i64
      %one = constant {{value = 1}} : i64
      %flag = cmp %n, %one {{predicate = "lt"}} : i1
      %chosen = select %flag, %a, %b : ptr<f32>
      %moved = for %zero, %n, %one, %c : ptr<f32> (%i: i64, %p: ptr<f32>) {{
        %value = load %p {HINTS} : f32
        %next = addptr %p, %one : ptr<f32>
        yield %next
      }}
      %many = splat %chosen : tile<4xptr<f32>>
      %values = load %many {HINTS} : tile<4xf32>
      %same = call %d {{callee = "write"}} : ptr<f32>
      %last = load %same {HINTS} : f32
      store %moved, %last {HINTS}
      return
    }}
    func @write(%p: ptr<f32>) -> ptr<f32> {{
      %value = constant {{value = 1.0}} : f32
      store %p, %value {HINTS}
      return %p
    }}
"""


def named(module: Module, name: str) -> set[str]:
    """Return the roots of the kernel's value of that name."""
    roots = pointer_roots(module)
    (value,) = (
        value
        for operation in module.kernel.body.walk()
        for value in (*operation.results, *(v for r in operation.regions for v in r.arguments))
        if value.name == name
    )
    return set(roots.get(value, ()))


def test_roots_follow_selection_loops_tiles_and_calls() -> None:
    module = parse_module(TEXT)
    assert named(module, "chosen") == named(module, "many") == {"a", "b"}
    assert named(module, "p") == named(module, "next") == named(module, "moved") == {"c"}
    assert named(module, "same") == {"d"}
    assert named(module, "values") == set()


def test_loads_and_stores_are_found_in_regions_and_calls() -> None:
    module = parse_module(TEXT)
    roots = pointer_roots(module)
    body = module.kernel.body
    assert arguments_of(module, body, READING, roots) == {"a", "b", "c", "d"}
    assert arguments_of(module, body, WRITING, roots) == {"c", "d"}
    (loop,) = (operation for operation in body.operations if operation.name == "for")
    assert arguments_of(module, loop.regions[0], READING, roots) == {"c"}


def test_written_arguments_are_in_signature_order() -> None:
    assert written_arguments(parse_module(TEXT)) == ("c", "d")


def test_atomic_operations_read_and_most_write() -> None:
    module = parse_module("""
        signature (a:*i32, b:*i32, c:*i32, n:i32) general num_warps=4 num_stages=3
        kernel @k(%a: ptr<i32>, %b: ptr<i32>, %c: ptr<i32>, %n: i32) {
          %0 = atomic_load %a {sem = "relaxed", scope = "sys"} : i32
          atomic_cas %c, %n, %0 {sem = "relaxed", scope = "gpu"}
          atomic_rmw %b, %n {kind = "add", sem = "relaxed", scope = "gpu"}
          return
        }
    """)
    body, roots = module.kernel.body, pointer_roots(module)
    assert arguments_of(module, body, READING, roots) == {"a", "b", "c"}
    assert written_arguments(module) == ("b", "c")
