"""Message descriptors, from a file or a Schema Registry."""

from __future__ import annotations

import base64
import binascii
import importlib
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError

from streamfactory.spi.causes import first_line
from streamfactory.spi.files import read_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from google.protobuf.descriptor import Descriptor, FileDescriptor

    from streamfactory.decoders.registry import Registry

_WELL_KNOWN: Final = "google/protobuf/"
_LONGEST: Final = 64 << 20
"""Bytes of a descriptor set."""
_MOST_FILES: Final = 1000


class DescriptorRefused(ValueError):
    """The descriptor is invalid or lacks the message. The text is the reason."""


def of_file(path: str, message: str | None) -> Descriptor:
    """A message descriptor of a FileDescriptorSet, as ``protoc`` writes it.

    Raises:
        DescriptorRefused: With the reason.
    """
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(read_file(path, _LONGEST))
    except OSError as error:
        msg = f"{path!r} cannot be read: {error.strerror}"
        raise DescriptorRefused(msg) from error
    except DecodeError as error:
        msg = (
            f"{path!r} is not a descriptor set: write it with protoc "
            "--descriptor_set_out"
        )
        raise DescriptorRefused(msg) from error
    if not files.file:
        msg = f"{path!r} contains no descriptor"
        raise DescriptorRefused(msg)
    pool = _pool({file.name: file for file in files.file})
    return _message(
        [pool.FindFileByName(file.name) for file in files.file][::-1], message
    )


def of_registry(registry: Registry, schema: Any, message: str | None) -> Descriptor:
    """A message descriptor of a schema that a registry returned in serialized form.

    Raises:
        DescriptorRefused: With the reason.
    """
    files: dict[str, Any] = {}
    _collect(registry, schema, "schema.proto", files)
    file = _pool(files).FindFileByName(list(files)[-1])
    return _message([file], message)


def _collect(registry: Registry, schema: Any, name: str, files: dict[str, Any]) -> None:
    """Collect the files that a schema references, dependencies first."""
    if len(files) > _MOST_FILES:
        msg = f"the schema has more than {_MOST_FILES} references"
        raise DescriptorRefused(msg)
    for reference in schema.references or ():
        if reference.name not in files and not reference.name.startswith(_WELL_KNOWN):
            files[reference.name] = None  # stops at a cycle
            found = registry.version(reference.subject, reference.version, "serialized")
            del files[reference.name]
            _collect(registry, found, reference.name, files)
    proto = descriptor_pb2.FileDescriptorProto()
    try:
        proto.ParseFromString(base64.b64decode(schema.schema_str, validate=True))
    except (binascii.Error, DecodeError, ValueError) as error:
        msg = "the registry returned no descriptor: it must support format=serialized"
        raise DescriptorRefused(msg) from error
    proto.name = name
    files[name] = proto


def _check_text(message: Any) -> None:
    """Refuse text that is not UTF-8: protobuf returns it as bytes, ptars panics.

    Raises:
        DescriptorRefused: A field contains such text.
    """
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            texts = [value] if isinstance(value, str | bytes) else value
            if any(isinstance(one, bytes) for one in texts):
                msg = f"the descriptor has a {field.name!r} that is not UTF-8"
                raise DescriptorRefused(msg)
        elif field.type == field.TYPE_MESSAGE:
            for one in [value] if hasattr(value, "ListFields") else value:
                _check_text(one)


def _pool(files: Mapping[str, Any]) -> Any:
    for each in files.values():
        _check_text(each)
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(name: str) -> None:
        if name in added:
            return
        added.add(name)
        file = files.get(name) or _well_known(name)
        for dependency in file.dependency:
            add(dependency)
        try:
            pool.Add(file)
        except TypeError as error:
            what = first_line(error, 200)
            msg = f"the descriptor of {name!r} is invalid: {what}"
            raise DescriptorRefused(msg) from error

    try:
        for name in files:
            add(name)
    except RecursionError:
        msg = "the imports of the files are nested too deeply"
        raise DescriptorRefused(msg) from None
    return pool


def _well_known(name: str) -> Any:
    """A file that is part of protobuf."""
    proto = descriptor_pb2.FileDescriptorProto()
    if name.startswith(_WELL_KNOWN) and name.endswith(".proto"):
        word = name.removeprefix(_WELL_KNOWN).removesuffix(".proto")
        if word.isidentifier():
            try:
                module = importlib.import_module(f"google.protobuf.{word}_pb2")
            except ImportError:
                pass
            else:
                module.DESCRIPTOR.CopyToProto(proto)
                return proto
    msg = f"the imported file {name!r} is missing: use protoc --include_imports"
    raise DescriptorRefused(msg)


def _message(files: Iterable[FileDescriptor], name: str | None) -> Descriptor:
    """The message of that name, or the first of the first file that has one."""
    known: list[str] = []
    for file in files:
        found = list(_all(file.message_types_by_name.values()))
        for message in found:
            if name in (None, message.full_name, message.name):
                return message
        known += [message.full_name for message in found]
    if not known:
        msg = "the descriptor contains no message"
        raise DescriptorRefused(msg)
    shown = ", ".join(known[:10])
    msg = f"the descriptor has no message {name!r}; it has {shown}"
    raise DescriptorRefused(msg)


def _all(messages: Iterable[Descriptor]) -> Iterable[Descriptor]:
    for message in messages:
        if not message.GetOptions().map_entry:
            yield message
            yield from _all(message.nested_types)


def index_path(message: Descriptor) -> list[int]:
    """The message index: positions within the enclosing messages, outermost first."""
    path: list[int] = []
    inner = message
    while inner.containing_type is not None:
        outer = inner.containing_type
        path.append([m.full_name for m in outer.nested_types].index(inner.full_name))
        inner = outer
    top = [m.full_name for m in inner.file.message_types_by_name.values()]
    return [*path, top.index(inner.full_name)][::-1]


def serialized(message: Descriptor) -> str:
    """The file of a message, in the form that a registry accepts.

    Raises:
        DescriptorRefused: The file imports files that are not part of protobuf.
    """
    proto = descriptor_pb2.FileDescriptorProto()
    message.file.CopyToProto(proto)
    foreign = [name for name in proto.dependency if not name.startswith(_WELL_KNOWN)]
    if foreign:
        msg = f"the descriptor imports {foreign[0]!r}: register that schema first"
        raise DescriptorRefused(msg)
    return base64.b64encode(proto.SerializeToString()).decode()
