"""A wheel's bill of materials: SPDX 2.3 as JSON, in `.dist-info/sboms/` (PEP 770).

It lists every file of the wheel with its hashes, the parts of other people's work inside them
(libdevice in the kernels, the runtime of the compiler in the launcher), what built them, and what
the wheel depends on. The components are data, `wheels/components.toml`; the rest is read from the
wheel, so it cannot say anything else than what is there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.parser import BytesParser
from importlib import metadata
from pathlib import Path
from typing import Any

from tilewright.errors import ReleaseError
from tilewright_release.table import Table, read_table

FOLDER = "sboms"
_VERSION = "SPDX-2.3"
_DOCUMENT = "SPDXRef-DOCUMENT"
_ROOT = "SPDXRef-Package"
_RELATIONS = ("CONTAINS", "STATIC_LINK", "BUILD_TOOL_OF")


@dataclass(frozen=True, slots=True)
class Component:
    """A part or a tool; see wheels/components.toml."""

    name: str
    distribution: str
    version: str
    relation: str
    licence: str
    copyright: str
    comment: str


@dataclass(frozen=True, slots=True)
class Components:
    """All components, and the licences among theirs that SPDX has no name for."""

    components: tuple[Component, ...]
    licences: tuple[dict[str, Any], ...]


def read_components(file: Path) -> Components:
    """Read the table, with the installed version of each component.

    Raises FormatError that names the key of whatever is wrong.
    """
    top = read_table(file)
    components = tuple(_read_component(table) for table in top.tables("component"))
    licences = tuple(_read_licence(table) for table in top.tables("licence"))
    known = {licence["licenseId"] for licence in licences}
    for component in components:
        if component.licence.startswith("LicenseRef-") and component.licence not in known:
            top.fail("licence", f"{component.licence} of {component.name} is not among them")
    top.finish()
    return Components(components, licences)


def make_sbom(
    contents: Mapping[str, bytes],
    *,
    dist_info: str,
    tag: str,
    components: Components,
    epoch: int,
) -> bytes:
    """Return the document for the files of a wheel; equal wheels give equal bytes."""
    about = BytesParser().parsebytes(contents[f"{dist_info}/METADATA"])
    name, version = about["Name"], about["Version"]
    files = [_file(path, contents[path], about["License-Expression"]) for path in _listed(contents)]
    # What a reader may compare with: a hash over the hashes of all files, as SPDX defines it.
    joined = "".join(sorted(_sha1_of(file) for file in files)).encode()
    verification = hashlib.sha1(joined, usedforsecurity=False).hexdigest()
    root = {
        "SPDXID": _ROOT,
        "name": name,
        "versionInfo": version,
        "packageFileName": f"{name}-{version}-{tag}.whl",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": True,
        "packageVerificationCode": {"packageVerificationCodeValue": verification},
        "licenseConcluded": " AND ".join(
            dict.fromkeys([about["License-Expression"], *_licences_inside(components)])
        ),
        "licenseDeclared": about["License-Expression"],
        "licenseInfoFromFiles": ["NOASSERTION"],
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "LIBRARY",
        "externalRefs": [_purl(name, version)],
    }
    parts = [_package(component) for component in components.components]
    needs = [_dependency(text) for text in about.get_all("Requires-Dist", []) if ";" not in text]
    relations = [
        (_DOCUMENT, "DESCRIBES", _ROOT),
        *((_ROOT, "CONTAINS", file["SPDXID"]) for file in files),
        *_relations(parts, components.components),
        *((_ROOT, "DEPENDS_ON", package["SPDXID"]) for package in needs),
    ]
    document = {
        "spdxVersion": _VERSION,
        "dataLicense": "CC0-1.0",
        "SPDXID": _DOCUMENT,
        "name": f"{name}-{version}-{tag}",
        "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{version}-{tag}-{verification}",
        "creationInfo": {
            "created": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": [f"Tool: {name}-dev-build-wheel-{version}"],
        },
        "packages": [root, *parts, *needs],
        "files": files,
        "relationships": [
            {"spdxElementId": left, "relationshipType": relation, "relatedSpdxElement": right}
            for left, relation, right in relations
        ],
        "hasExtractedLicensingInfos": list(components.licences),
    }
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def check_sbom(
    data: bytes,
    contents: Mapping[str, bytes],
    *,
    versions: Mapping[str, str],
    needs: Iterable[str],
) -> str:
    """Hold a document against the wheel it is in and return a sentence about it.

    It must be SPDX 2.3, list every file with its SHA-256, have a package for each of `versions` in
    that version and for each of the dependencies `needs`, and relate nothing that it does not list.
    Raises ReleaseError.
    """
    try:
        document = json.loads(data)
        _check_form(document)
        listed = {file["fileName"].removeprefix("./"): file for file in document["files"]}
        digests = {
            path: next(c["checksumValue"] for c in f["checksums"] if c["algorithm"] == "SHA256")
            for path, f in listed.items()
        }
        packages = {p["name"]: p.get("versionInfo") for p in document["packages"]}
        ids = {_DOCUMENT, *(item["SPDXID"] for item in (*document["packages"], *document["files"]))}
        related = {
            relation[side]
            for relation in document["relationships"]
            for side in ("spdxElementId", "relatedSpdxElement")
        }
    except (ValueError, KeyError, TypeError, StopIteration, AttributeError) as error:
        msg = f"the bill of materials is no SPDX document: {error!r}"
        raise ReleaseError(msg) from error
    expected = {path: hashlib.sha256(contents[path]).hexdigest() for path in _listed(contents)}
    differing = sorted(
        path for path in expected.keys() | digests if expected.get(path) != digests.get(path)
    )
    if differing:
        msg = f"the bill of materials has other files or hashes than the wheel: {differing[:5]}"
        raise ReleaseError(msg)
    missing = sorted({*versions, *needs} - set(packages))
    if missing:
        msg = f"the bill of materials does not name {', '.join(missing)}"
        raise ReleaseError(msg)
    for name, version in versions.items():
        if packages[name] != version:
            msg = f"the bill of materials has {name} {packages[name]}, the wheel has {version}"
            raise ReleaseError(msg)
    dangling = sorted(related - ids)
    if dangling or ids - related:
        msg = f"the bill of materials relates what it does not list, or not all: {dangling[:5]}"
        raise ReleaseError(msg)
    return f"{_VERSION}, {len(listed)} files and {len(packages)} packages"


def required_name(requirement: str) -> str:
    """Return the name of the distribution in a requirement such as `numpy>=1.26`."""
    return re.split(r"[\s<>=!~\[(;]", requirement, maxsplit=1)[0]


def _check_form(document: Mapping[str, Any]) -> None:
    if (document["spdxVersion"], document["dataLicense"]) != (_VERSION, "CC0-1.0"):
        msg = f"the bill of materials is {document['spdxVersion']!r}, not {_VERSION}"
        raise ReleaseError(msg)
    for field in ("SPDXID", "name", "documentNamespace", "creationInfo"):
        if not document[field]:
            msg = f"the bill of materials has no {field}"
            raise ReleaseError(msg)


def _listed(contents: Mapping[str, bytes]) -> list[str]:
    """Return what a document lists: not itself, nor RECORD, which has its hash."""
    left_out = re.compile(rf"[^/]+\.dist-info/(RECORD|{FOLDER}/.*)")
    return sorted(path for path in contents if not left_out.fullmatch(path))


def _file(path: str, data: bytes, licence: str) -> dict[str, Any]:
    return {
        "SPDXID": f"SPDXRef-File-{hashlib.sha256(path.encode()).hexdigest()[:16]}",
        "fileName": f"./{path}",
        "fileTypes": ["BINARY" if path.endswith((".so", ".pack")) else "TEXT"],
        # SPDX 2.3 asks for SHA-1 and allows others beside it.
        "checksums": [
            {
                "algorithm": "SHA1",
                "checksumValue": hashlib.sha1(data, usedforsecurity=False).hexdigest(),
            },
            {"algorithm": "SHA256", "checksumValue": hashlib.sha256(data).hexdigest()},
        ],
        "licenseConcluded": "NOASSERTION" if path.endswith(".pack") else licence,
        "licenseInfoInFiles": ["NOASSERTION"],
        "copyrightText": "NOASSERTION",
    }


def _sha1_of(file: Mapping[str, Any]) -> str:
    return str(file["checksums"][0]["checksumValue"])


def _package(component: Component) -> dict[str, Any]:
    return {
        "SPDXID": f"{_ROOT}-{_id(component.name)}",
        "name": component.name,
        "versionInfo": component.version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": component.licence,
        "licenseDeclared": component.licence,
        "copyrightText": component.copyright,
        "comment": component.comment,
        "externalRefs": [_purl(component.distribution, component.version)],
    }


def _dependency(requirement: str) -> dict[str, Any]:
    name = required_name(requirement)
    return {
        "SPDXID": f"{_ROOT}-needs-{_id(name)}",
        "name": name,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "comment": f"Not in the wheel, which requires {requirement}.",
        "externalRefs": [_purl(name, "")],
    }


def _relations(
    packages: Sequence[Mapping[str, Any]], components: Sequence[Component]
) -> list[tuple[str, str, str]]:
    return [
        (package["SPDXID"], component.relation, _ROOT)
        if component.relation.endswith("_OF")
        else (_ROOT, component.relation, package["SPDXID"])
        for package, component in zip(packages, components, strict=True)
    ]


def _licences_inside(components: Components) -> list[str]:
    return [c.licence for c in components.components if not c.relation.endswith("_OF")]


def _purl(name: str, version: str) -> dict[str, str]:
    normal = re.sub(r"[-_.]+", "-", name).lower()
    return {
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": f"pkg:pypi/{normal}" + (f"@{version}" if version else ""),
    }


def _id(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", name)


def _read_component(table: Table) -> Component:
    distribution, relation = table.text("distribution"), table.text("relation")
    if relation not in _RELATIONS:
        table.fail("relation", f"is {relation!r}; known are {', '.join(_RELATIONS)}")
    try:
        version = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        table.fail("distribution", f"{distribution} is not installed; it has made no wheel here")
    component = Component(
        table.text("name"),
        distribution,
        version,
        relation,
        table.text("licence"),
        table.text("copyright"),
        table.text("comment"),
    )
    table.finish()
    return component


def _read_licence(table: Table) -> dict[str, Any]:
    licence = {
        "licenseId": table.text("id"),
        "name": table.text("name"),
        "extractedText": table.text("text"),
        "seeAlsos": [table.text("see_also")],
    }
    table.finish()
    return licence
