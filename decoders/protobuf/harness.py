"""Messages of ``protobuf`` for the conformance kit."""

from __future__ import annotations

import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

_LONG: Final = descriptor_pb2.FieldDescriptorProto.TYPE_INT64
_TEXT: Final = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_ONE: Final = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
_MANY: Final = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED


class ProtobufHarness:
    """Encodes a number as an int64, a text and a list."""

    several = False

    def __init__(self) -> None:
        file = descriptor_pb2.FileDescriptorProto(
            name="reading.proto", package="conformance", syntax="proto3"
        )
        message = file.message_type.add(name="ProtobufBatchDecoder")
        message.field.add(name="number", number=1, type=_LONG, label=_ONE)
        message.field.add(name="text", number=2, type=_TEXT, label=_ONE)
        message.field.add(name="twice", number=3, type=_LONG, label=_MANY)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        found = pool.FindMessageTypeByName("conformance.ProtobufBatchDecoder")
        self._make = message_factory.GetMessageClass(found)
        folder = tempfile.mkdtemp()
        self._path = Path(folder, "reading.desc")
        self._path.write_bytes(
            descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
        )
        weakref.finalize(self, _remove, self._path)

    def options(self) -> Mapping[str, str]:
        """The descriptor set."""
        return {
            "descriptor.file": str(self._path),
            "message": "conformance.ProtobufBatchDecoder",
        }

    def message(self, numbers: Sequence[int]) -> bytes:
        """One message, written by protobuf."""
        [number] = numbers
        made = self._make(number=number, text=f"number {number}", twice=[number] * 2)
        return bytes(made.SerializeToString())

    def undeclared(self, number: int) -> bytes:
        """A field that the type does not define: field number 127, value 1."""
        return self.message([number]) + b"\xf8\x07\x01"

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        """The column ``number``, after a check of the other columns."""
        found = rows.to_pylist()
        for row in found:
            assert row["text"] == f"number {row['number']}"
            assert row["twice"] == [row["number"]] * 2
        return [row["number"] for row in found]

    def bad(self) -> Mapping[str, bytes]:
        """Messages that do not fit the type."""
        return {
            "cut short": self.message([7])[:-1],
            "a field without number": self.message([7]) + b"\0",
            "text that is no UTF-8": b"\x12\x01\xff",
            "an endless number": b"\x08" + b"\xff" * 11,
            "a huge length": b"\x12\xff\xff\xff\xff\x0f",
            "a group without end": b"\x0b",
        }


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.parent.rmdir()
