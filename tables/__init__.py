"""The common base of stream types of lakehouse tables.

A backend implements `Table` for its format, and a `TableConsumerFactory` that opens it;
offsets, bounds, consumers, change columns and the cutting of plans are here.

**The stream of a table.** One topic with one partition, 0. A new reader starts with a
*snapshot*: all rows of the table as of its newest commit. Behind it come the *changes*
of each later commit. An offset names (commit, phase, row); see `Layout`. The phase is
0 for the changes of a commit, 1 for the snapshot as of it. So offsets are sparse, and
order by commit. From the last row of a snapshot as of V, and from the last change of
V, reading continues with the changes of V + 1. `earliest` is the first change that
can still be read, `latest` the first change of the commit to come; a new reader starts
with the snapshot as of the newest commit (`PartitionInfo.begin`).

**What a format implements** (`Table`): its commits, each with an ordinal that every
reader agrees on; and for each commit two lists of `Piece`, mostly data files: those of
the snapshot, and those of the changes. The lists are functions of the commit alone, in
an order that the log fixes. A piece takes ``span`` offsets: exactly its rows, or an
upper bound where the number is not known without reading, then offsets without a row
are gaps. `Table.read` streams the rows of a piece from some row number on, the same at
every call. A missing file is `PieceGone`: the base makes a recorded loss of it (rule
R7). A commit without changed rows (compaction) has no pieces of changes.

**To be written**, a format implements `WritableTable` and a `TableProducerFactory`
(`writing.py`): the base stages Parquet files beside the table (`staging.py`), claims
writers, tries again behind commits of others, fences earlier instances
(`committing.py`), and replaces files whose rows were updated or deleted (`merging.py`).

**Parts for it**: `TableFiles` opens files of a folder or an object store by the
options ``storage.*``; `relative_path` refuses paths of the log that lead out of the
table; `open_parquet` reads Parquet files a batch at a time; `StreamColumns` has the
columns of the stream, `FileColumns` converts rows of a file to them, by what identifies
a column in the format (`Match`); `check_avro_file` refuses files
that inflate beyond the limit; `TABLE_OPTIONS` and `PATH_OPTION`
are the options that all formats share.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streamfactory.tables.avro import check_avro_file, check_avro_schema
    from streamfactory.tables.consumer import TableConsumer
    from streamfactory.tables.detection import missing_table, table_folder
    from streamfactory.tables.errors import error_table, store_failure
    from streamfactory.tables.factory import TableConsumerFactory
    from streamfactory.tables.filecolumns import FileColumns
    from streamfactory.tables.foreign import parse_json
    from streamfactory.tables.forks import ForkGuard
    from streamfactory.tables.kept import Kept
    from streamfactory.tables.layout import Layout, Place
    from streamfactory.tables.matching import (
        FIELD_ID,
        Match,
        StreamColumns,
        bare,
        by_id,
        by_name,
        check_fields,
        check_ids,
    )
    from streamfactory.tables.metadata import TableMetadata
    from streamfactory.tables.options import (
        APPENDS,
        PATH_OPTION,
        START_REMEDY,
        TABLE_OPTIONS,
        WRITE_OPTIONS,
        changes_option,
        partition_option,
    )
    from streamfactory.tables.parquet import (
        DataFile,
        count_rows,
        open_parquet,
        stream_rows,
    )
    from streamfactory.tables.places import (
        TableFiles,
        check_size,
        path_below,
        relative_path,
    )
    from streamfactory.tables.selection import MOST_MARKED, select_rows, without_rows
    from streamfactory.tables.stored import stored_piece
    from streamfactory.tables.stores import check_options, client_options
    from streamfactory.tables.table import (
        DELETE,
        INSERT,
        UPDATE_AFTER,
        UPDATE_BEFORE,
        Chunk,
        Commit,
        Oldest,
        Piece,
        PieceGone,
        Stored,
        Table,
    )

__all__ = [
    "APPENDS",
    "DELETE",
    "FIELD_ID",
    "INSERT",
    "MOST_MARKED",
    "PATH_OPTION",
    "START_REMEDY",
    "TABLE_OPTIONS",
    "UPDATE_AFTER",
    "UPDATE_BEFORE",
    "WRITE_OPTIONS",
    "Chunk",
    "Commit",
    "DataFile",
    "FileColumns",
    "ForkGuard",
    "Kept",
    "Layout",
    "Match",
    "Oldest",
    "Piece",
    "PieceGone",
    "Place",
    "Stored",
    "StreamColumns",
    "Table",
    "TableConsumer",
    "TableConsumerFactory",
    "TableFiles",
    "TableMetadata",
    "bare",
    "by_id",
    "by_name",
    "changes_option",
    "check_avro_file",
    "check_avro_schema",
    "check_fields",
    "check_ids",
    "check_options",
    "check_size",
    "client_options",
    "count_rows",
    "error_table",
    "missing_table",
    "open_parquet",
    "parse_json",
    "partition_option",
    "path_below",
    "relative_path",
    "select_rows",
    "store_failure",
    "stored_piece",
    "stream_rows",
    "table_folder",
    "without_rows",
]

_LATER: Final = {
    "avro": "check_avro_file check_avro_schema",
    "consumer": "TableConsumer",
    "detection": "missing_table table_folder",
    "errors": "error_table store_failure",
    "factory": "TableConsumerFactory",
    "filecolumns": "FileColumns",
    "foreign": "parse_json",
    "forks": "ForkGuard",
    "kept": "Kept",
    "layout": "Layout Place",
    "matching": (
        "FIELD_ID Match StreamColumns bare by_id by_name check_fields check_ids"
    ),
    "metadata": "TableMetadata",
    "options": (
        "APPENDS PATH_OPTION START_REMEDY TABLE_OPTIONS WRITE_OPTIONS changes_option "
        "partition_option"
    ),
    "parquet": "DataFile count_rows open_parquet stream_rows",
    "places": "TableFiles check_size path_below relative_path",
    "selection": "MOST_MARKED select_rows without_rows",
    "stored": "stored_piece",
    "stores": "check_options client_options",
    "table": (
        "DELETE INSERT UPDATE_AFTER UPDATE_BEFORE Chunk Commit Oldest Piece "
        "PieceGone Stored Table"
    ),
}
"""Names by module, imported at their first use: options are validated without Arrow."""
_MODULES: Final = {name: at for at, names in _LATER.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # found without this function from now on
    return value
