"""A wheel as a file: its tags, RECORD, licences, extension and packs, without installing it.

Each check returns a sentence about what it found, or raises ReleaseError.
"""

from __future__ import annotations

import ast
import base64
import csv
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from email.parser import BytesParser
from pathlib import Path

from tilewright.abi.manifest import FILE_NAME, Manifest, blob_target
from tilewright.abi.pack import PackReader
from tilewright.abi.target import Target
from tilewright.errors import InternalCompilerError, ReleaseError
from tilewright_compiler.backend.cubin import check_cubin
from tilewright_compiler.toolchain import PINNED
from tilewright_release.provenance import FILE_NAME as PROVENANCE
from tilewright_release.provenance import Provenance, bundled
from tilewright_release.sbom import FOLDER as SBOMS
from tilewright_release.sbom import Components, check_sbom, required_name
from tilewright_release.table import read_table
from tilewright_release.wheel_extension import check_extension, version

PREBUILT = "tilewright/_prebuilt"


@dataclass(frozen=True, slots=True)
class WheelLimits:
    """What a wheel is judged by; see wheels/limits.toml.

    `resolution` is by the CUDA version of the driver, then by compute capability.
    """

    max_bytes: int
    sdist_bytes: int
    tag: str
    machines: tuple[str, ...]
    packages: tuple[str, ...]
    glibc: tuple[int, ...]
    needed: tuple[str, ...]
    licences: tuple[str, ...]
    notices: tuple[str, ...]
    resolution: dict[str, dict[str, str]]


def read_limits(file: Path) -> WheelLimits:
    """Read the table; raises FormatError that names the key of whatever is wrong."""
    top = read_table(file)
    wheel, drivers = top.table("wheel"), top.table("resolution")
    limits = WheelLimits(
        max_bytes=wheel.integer("max_bytes"),
        sdist_bytes=wheel.integer("sdist_bytes"),
        tag=wheel.text("tag"),
        machines=wheel.texts("machines"),
        packages=wheel.texts("packages"),
        glibc=version(wheel.text("glibc")),
        needed=wheel.texts("needed"),
        licences=wheel.texts("licences"),
        notices=wheel.texts("notices"),
        resolution={
            driver: {name: str(value) for name, value in drivers.scalars(driver).items()}
            for driver in drivers.names()
        },
    )
    wheel.finish()
    top.finish()
    return limits


class WheelFile:
    """An open wheel with the parts that checks read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                names = [item for item in archive.infolist() if not item.is_dir()]
                self.contents = {item.filename: archive.read(item) for item in names}
        except (OSError, zipfile.BadZipFile) as error:
            msg = f"{path} cannot be read as a wheel: {error}"
            raise ReleaseError(msg) from error
        # Of two files of one name, one reader takes the first and another the last.
        if len(names) != len(self.contents):
            twice = sorted(n for n, c in Counter(i.filename for i in names).items() if c > 1)
            msg = f"{path} holds {', '.join(twice)} more than once"
            raise ReleaseError(msg)
        self.dist_info = _only(
            [name for name in self.contents if name.endswith(".dist-info/WHEEL")], "WHEEL file"
        ).removesuffix("/WHEEL")

    @property
    def name(self) -> str:
        """The name of the distribution, as the file is called."""
        return self.path.name.split("-")[0]

    @property
    def version(self) -> str:
        """The version, as the file is called."""
        return self.path.name.split("-")[1]

    @property
    def tag(self) -> str:
        """The tags of Python, ABI and platform, as the file is called."""
        return self.path.name.removesuffix(".whl").split("-", 2)[-1]

    @property
    def has_bundle(self) -> bool:
        """Whether there is a bundle in it."""
        return f"{PREBUILT}/{FILE_NAME}" in self.contents

    def machine(self, limits: WheelLimits) -> str:
        """Return the processor it is for; raises ReleaseError for one that we do not build for."""
        machine = self.tag.removeprefix(f"{limits.tag}_")
        if machine not in limits.machines:
            msg = (
                f"file name says {self.tag}; expected {limits.tag}_MACHINE with a machine of "
                f"{', '.join(limits.machines)}"
            )
            raise ReleaseError(msg)
        return machine

    def check_tags(self, limits: WheelLimits) -> str:
        """File name, WHEEL and METADATA agree on a promised tag, and so does auditwheel."""
        self.machine(limits)
        lines = self.contents[f"{self.dist_info}/WHEEL"].decode().splitlines()
        tags = [line.removeprefix("Tag: ") for line in lines if line.startswith("Tag: ")]
        if [self.tag] != tags:
            msg = f"file name says {self.tag}, WHEEL says {tags}"
            raise ReleaseError(msg)
        about = BytesParser().parsebytes(self.contents[f"{self.dist_info}/METADATA"])
        named = f"{about['Name']}-{about['Version']}"
        if {f"{self.name}-{self.version}", self.dist_info.removesuffix(".dist-info")} != {named}:
            msg = f"file {self.path.name} has {self.dist_info} and is {named} by its METADATA"
            raise ReleaseError(msg)
        found = _auditwheel(self.path)
        if found["external_libs"] or _glibc_of_tag(str(found["overall_tag"])) > limits.glibc:
            msg = (
                f"auditwheel finds {found['overall_tag']} and external libraries "
                f"{found['external_libs']}; the wheel is tagged {self.tag}"
            )
            raise ReleaseError(msg)
        return f"{self.tag}; by its symbols it is {found['overall_tag']}"

    def check_size(self, limits: WheelLimits) -> str:
        """The wheel is small enough; its largest parts are named."""
        size = self.path.stat().st_size
        parts = ", ".join(f"{name} {part / 1e6:.2f} MB" for name, part in self.parts().items())
        if size > limits.max_bytes:
            msg = f"the wheel has {size} bytes, the limit is {limits.max_bytes}: {parts}"
            raise ReleaseError(msg)
        return f"{size / 1e6:.2f} MB of {limits.max_bytes / 1e6:.0f} MB: {parts}"

    def parts(self) -> dict[str, int]:
        """Return the bytes of each part: packs by target, manifest, launcher, the rest."""
        sizes: Counter[str] = Counter()
        for name, data in self.contents.items():
            if name.endswith(".pack"):
                part = Path(name).name.split("-")[-2]
            elif name == f"{PREBUILT}/{FILE_NAME}":
                part = "manifest"
            else:
                part = "launcher" if name.endswith(".so") else "the rest"
            sizes[part] += len(data)
        return dict(sorted(sizes.items()))

    def check_install(self, limits: WheelLimits) -> str:
        """Nothing is installed but the packages: nothing that runs by itself or is elsewhere."""
        tops = {name.partition("/")[0] for name in self.contents}
        foreign = sorted(tops - {*limits.packages, self.dist_info})
        if foreign or not tops >= set(limits.packages):
            msg = (
                f"the wheel installs {', '.join(sorted(tops))}; it must be "
                f"{', '.join(limits.packages)} and {self.dist_info}, without scripts and .pth files"
            )
            raise ReleaseError(msg)
        points = self.contents.get(f"{self.dist_info}/entry_points.txt", b"").decode().split("\n")
        lines = [line.replace(" ", "") for line in points if line.strip()]
        if lines != ["[console_scripts]", "tilewright=tilewright.cli.main:main"]:
            msg = f"the entry points are {lines}, not the command line alone"
            raise ReleaseError(msg)
        return f"{', '.join(limits.packages)} and the command `tilewright`"

    def check_record(self) -> str:
        """RECORD lists every file with its hash and size, and nothing else."""
        record = f"{self.dist_info}/RECORD"
        rows = list(csv.reader(io.StringIO(self.contents[record].decode())))
        listed = {row[0]: (row[1], row[2]) for row in rows}
        if set(listed) != set(self.contents):
            msg = f"RECORD and contents differ: {sorted(set(listed) ^ set(self.contents))}"
            raise ReleaseError(msg)
        for name, (digest, size) in listed.items():
            data = self.contents[name]
            raw = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            if name != record and (digest, size) != (f"sha256={raw}", str(len(data))):
                msg = f"RECORD has another hash or size for {name} than its contents"
                raise ReleaseError(msg)
        return f"{len(listed)} files, all with the recorded hash"

    def check_licences(self, limits: WheelLimits) -> str:
        """The licence files are there, and the notices name what the wheel holds of others."""
        folder = f"{self.dist_info}/licenses"
        for name in limits.licences:
            if not self.contents.get(f"{folder}/{name}", b"").strip():
                msg = f"licence file {name} is missing or empty in {folder}"
                raise ReleaseError(msg)
        notices = self.contents[f"{folder}/{limits.licences[-1]}"].decode()
        missing = [name for name in limits.notices if name not in notices]
        if missing:
            msg = f"{limits.licences[-1]} does not name {', '.join(missing)}"
            raise ReleaseError(msg)
        return f"{', '.join(limits.licences)}; notices name {', '.join(limits.notices)}"

    def check_extension(self, limits: WheelLimits) -> str:
        """The launcher is one abi3 extension for the wheel's processor, as `limits` allow."""
        machine = self.machine(limits)
        interpreter = limits.tag.partition("-")[0].removeprefix("cp")
        return check_extension(
            self.contents,
            machine=machine,
            python=(int(interpreter[0]), int(interpreter[1:])),
            glibc=limits.glibc,
            needed=limits.needed,
        )

    def check_provenance(self, limits: WheelLimits) -> str:
        """The provenance is that of this wheel and of its bundle."""
        made = self.provenance()
        manifest = self.manifest()
        expected = (self.name, self.version, self.machine(limits), bundled(manifest))
        if (made.name, made.version, made.machine, made.bundle) != expected:
            msg = f"{PROVENANCE} is of another wheel or bundle: {made}"
            raise ReleaseError(msg)
        tools = "+".join(f"{name}-{made.tools.get(name)}" for name in PINNED)
        toolchains = {b.toolchain for e in manifest.entries.values() for b in e.blobs.values()}
        if toolchains != {tools}:
            msg = f"{PROVENANCE} says {tools}, the blobs were made by {sorted(toolchains)}"
            raise ReleaseError(msg)
        commit = made.commit or "no commit"
        return f"{commit}{' with changes' if made.is_modified else ''}; {tools}"

    def provenance(self) -> Provenance:
        """Return the provenance; raises ReleaseError when there is none."""
        return Provenance.from_bytes(self._dist_info_file(PROVENANCE, "provenance"))

    def check_sbom(self, components: Components) -> str:
        """The bill of materials lists the wheel as it is, with all components of others."""
        about = BytesParser().parsebytes(self.contents[f"{self.dist_info}/METADATA"])
        needs = [text for text in about.get_all("Requires-Dist", []) if ";" not in text]
        tools = self.provenance().tools
        return check_sbom(
            self._dist_info_file(f"{SBOMS}/{self.name}.spdx.json", "bill of materials"),
            self.contents,
            versions={
                component.name: tools.get(component.distribution, "none")
                for component in components.components
            },
            needs=[required_name(text) for text in needs],
        )

    def check_paths(self, folders: Sequence[Path]) -> str:
        """No file names a folder of the machine that built it."""
        needles = [f"{folder}/".encode() for folder in folders if len(folder.parts) > 1]
        found = [
            f"{name} holds {needle.decode()}"
            for name, data in sorted(self._expanded().items())
            for needle in needles
            if needle in data
        ]
        if found:
            raise ReleaseError("build paths in the wheel: " + "; ".join(found[:5]))
        return f"none of {', '.join(needle.decode() for needle in needles)}"

    def check_syntax(self) -> str:
        """Every module can be read by the oldest Python that the metadata promises."""
        about = BytesParser().parsebytes(self.contents[f"{self.dist_info}/METADATA"])
        promised = str(about["Requires-Python"])
        oldest = version(promised.removeprefix(">="))
        modules = [name for name in self.contents if name.endswith(".py")]
        for name in modules:
            try:
                ast.parse(self.contents[name], name, feature_version=(oldest[0], oldest[1]))
            except (SyntaxError, ValueError) as error:
                msg = f"{name} is no Python {_dotted(oldest)}, which {promised} promises: {error}"
                raise ReleaseError(msg) from error
        return f"{len(modules)} modules are Python {_dotted(oldest)}"

    def check_bundle(self) -> str:
        """Every blob of the manifest is there, with its sha256, and is what the manifest says."""
        manifest = self.manifest()
        blobs = 0
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            readers = {name: PackReader(path) for name, path in self._unpack_packs(folder).items()}
            try:
                for key, entry in manifest.entries.items():
                    for name, blob in entry.blobs.items():
                        if blob.pack not in readers:
                            msg = (
                                f"entry {key}: blob {name} is in pack {blob.pack}, not in the wheel"
                            )
                            raise ReleaseError(msg)
                        data = readers[blob.pack].read(blob.sha256)
                        if blob.kind == "cubin":
                            target = Target.parse(blob_target(name))
                            check_cubin(data, target=target, abi=entry.abi_of(blob))
                        blobs += 1
            except InternalCompilerError as error:
                msg = f"a cubin is not what the manifest says: {error}"
                raise ReleaseError(msg) from error
            finally:
                for reader in readers.values():
                    reader.close()
        return f"{len(manifest.entries)} entries, {blobs} blobs in {len(readers)} packs, all intact"

    def manifest(self) -> Manifest:
        """Return the manifest; raises ReleaseError when the wheel has no bundle."""
        name = f"{PREBUILT}/{FILE_NAME}"
        if name not in self.contents:
            msg = f"the wheel has no {name}: it was built without `tilewright dev bundle-kernels`"
            raise ReleaseError(msg)
        return Manifest.from_bytes(self.contents[name], origin=name)

    def _dist_info_file(self, name: str, what: str) -> bytes:
        path = f"{self.dist_info}/{name}"
        if path not in self.contents:
            msg = f"the wheel has no {what} ({path}): it was built without `tilewright dev`"
            raise ReleaseError(msg)
        return self.contents[path]

    def _expanded(self) -> dict[str, bytes]:
        contents = dict(self.contents)
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            for name, path in self._unpack_packs(folder).items():
                with PackReader(path) as reader:
                    for digest in reader:
                        contents[f"{name}/{digest}"] = reader.read(digest)
        return contents

    def _unpack_packs(self, folder: str) -> dict[str, Path]:
        paths = {}
        for name, data in self.contents.items():
            if name.startswith(f"{PREBUILT}/") and name.endswith(".pack"):
                path = Path(folder, Path(name).name)
                path.write_bytes(data)
                paths[path.name] = path
        return paths


def _auditwheel(path: Path) -> dict[str, object]:
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        msg = f"auditwheel refuses {path.name}: {(done.stdout + done.stderr).strip()[-500:]}"
        raise ReleaseError(msg)
    report: dict[str, object] = json.loads(done.stdout)
    return report


def _glibc_of_tag(tag: str) -> tuple[int, ...]:
    parts = tag.split("_")
    if parts[0] != "manylinux" or len(parts) < 3:
        msg = f"auditwheel finds the tag {tag}, which is no manylinux"
        raise ReleaseError(msg)
    return (int(parts[1]), int(parts[2]))


def _only(names: Sequence[str], what: str) -> str:
    if len(names) != 1:
        msg = f"the wheel must have exactly one {what}, it has {len(names)}: {', '.join(names)}"
        raise ReleaseError(msg)
    return names[0]


def _dotted(numbers: Sequence[int]) -> str:
    return ".".join(map(str, numbers))
