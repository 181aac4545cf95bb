"""Where the code of a kernel comes from in the world as it is: bundle, user cache, compiler.

`decide_key` collects what is on offer for the pure `resolve`; a `Fetcher` then gets the bytes of
one candidate, compiling where it must. Of N processes that miss at once, one compiles and the
others find its result.
"""

from __future__ import annotations

from tilewright.abi.arguments import LaunchAbi
from tilewright.abi.manifest import OWN_SCHEDULE, PTX, Entry
from tilewright.abi.signature import KernelSignature
from tilewright.abi.target import Target
from tilewright.errors import FormatError
from tilewright.language.kernel import Kernel
from tilewright.lazy_dataclass import dataclass
from tilewright.runtime import cache, jit, store
from tilewright.runtime.cache import UserCache
from tilewright.runtime.cache_file import CachedKernel
from tilewright.runtime.device import DeviceFacts
from tilewright.runtime.resolve import Bundled, Candidate, Decision, Offers, Policy, resolve
from tilewright.runtime.store import source_key
from tilewright.settings import settings

__all__ = ["Fetcher", "decide_key", "fetch_bundled", "source_key"]


def decide_key(
    kernel: str, signature: str, key: str, *, facts: DeviceFacts, policy: Policy | None = None
) -> Decision:
    """Return the decision for a source key; `policy` is the settings' unless given."""
    bundled, faults = store.find(key)
    target = jit.target_for(facts.capability)
    policy = policy or policy_of_settings(jit=settings().jit)
    # The cache is asked only where the bundle has nothing: the prebuilt path reads no user folder.
    not_cached = _why_not_asked(bundled, policy)
    cached = () if not_cached else _cached(key, target)
    return resolve(
        kernel,
        signature,
        key,
        offers=Offers(
            bundled=bundled,
            cached=cached,
            compiler=jit.why_unavailable(),
            jit_target=target,
            faults=faults,
            not_cached=not_cached,
            has_own_schedule=target in jit.OWN_SCHEDULES,
        ),
        device=facts,
        policy=policy,
    )


def _why_not_asked(bundled: tuple[Bundled, ...], policy: Policy) -> str:
    """Return why the cache is not asked; empty if it is."""
    if bundled:
        return "not asked, since a bundle has the kernel"
    return "" if policy.jit else "not asked, since TILEWRIGHT_JIT=off"


def policy_of_settings(*, jit: bool) -> Policy:
    """Return what the settings allow, with `jit` for our own compiler."""
    return Policy(jit=jit, ptx=settings().ptx, cubins=not settings().force_ptx)


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Gets the launch ABI and the bytes of a candidate of one kernel and signature."""

    kernel: Kernel
    signature: KernelSignature
    source_key: str

    def __call__(self, candidate: Candidate) -> tuple[LaunchAbi, bytes]:
        """Return the ABI and the code; raises FormatError, or what compiling raises."""
        if candidate.origin in ("compile", "compiled ptx"):
            target = None if candidate.target == PTX else Target.parse(candidate.target)
            return self._compile(target, is_common=candidate.is_common)
        entry, blob = candidate.entry, candidate.blob
        assert entry is not None
        assert blob is not None
        if candidate.origin in ("cached", "cached ptx"):
            return entry.abi_of(blob), cache.user_cache().read(self.source_key, blob)
        return fetch_bundled(self.source_key, candidate)

    def _compile(self, target: Target | None, *, is_common: bool) -> tuple[LaunchAbi, bytes]:
        users, text = cache.user_cache(), _text(target, is_common=is_common)
        freshness = jit.build_key(self.source_key, target)
        with users.lock(self.source_key):
            # Another process may have compiled it while this one waited.
            cached = users.find(self.source_key, text, freshness)
            if cached is None:
                cached = self._made(users, target, freshness, is_common=is_common)
            blobs = cached.entry.blobs
            name = PTX if target is None else str(target)
            blob = blobs.get(f"{name}{OWN_SCHEDULE}") or blobs[name]
            return cached.entry.abi_of(blob), users.read(self.source_key, blob)

    def _made(
        self, users: UserCache, target: Target | None, freshness: str, *, is_common: bool
    ) -> CachedKernel:
        """Compile what a launch waits for, and no more, and keep it."""
        targets = () if target is None else (target,)
        compiled = jit.compile_kernel(
            self.kernel, self.signature, targets, texts="common" if is_common else "first"
        )
        cubins = compiled.cubins
        codes = {PTX: compiled.ptx.encode()} if compiled.ptx else {}
        codes |= {name: cubin.data for name, cubin in cubins.items()}
        return users.put(
            self.source_key,
            _text(target, is_common=is_common),
            freshness,
            kernel=self.kernel.qualified_name,
            signature=str(self.signature),
            abi=compiled.abi,
            codes=codes,
            own_abis={name: cubin.abi for name, cubin in cubins.items() if cubin.abi is not None},
            waiting={name for name, cubin in cubins.items() if cubin.waits},
        )


def _text(target: Target | None, *, is_common: bool = False) -> str:
    """Return what the cache calls a compilation for a target (None: PTX alone)."""
    return PTX if target is None else f"{target}-common" if is_common else str(target)


def _cached(key: str, target: Target | None) -> tuple[Entry, ...]:
    """Return what the user's cache has of a kernel, what a launch tries first before the rest."""
    users, compiler = cache.user_cache(), jit.why_unavailable()
    freshness = None if compiler is not None else jit.build_key(key, target)
    first = users.find(key, _text(target), freshness)
    if target not in jit.OWN_SCHEDULES:
        return () if first is None else (first.entry,)
    common = users.find(key, _text(target, is_common=True), freshness)
    if first is None and compiler is None:
        return ()  # what is better is made now, and finds the other where that is needed
    return tuple(each.entry for each in (first, common) if each is not None)


def fetch_bundled(key: str, candidate: Candidate) -> tuple[LaunchAbi, bytes]:
    """Return the ABI and the checked bytes of a candidate that a bundle holds.

    Where another process replaced the bundle since the decision, those of the new one's.
    """
    entry, blob = candidate.entry, candidate.blob
    bundle = store.bundle_at(candidate.folder)
    while True:
        assert entry is not None
        assert blob is not None
        try:
            return entry.abi_of(blob), bundle.read(blob)
        except FormatError:
            entry, old = bundle.entry(key), blob
            blob = None if entry is None else entry.blobs.get(candidate.target)
            if blob is None or blob == old:
                raise
