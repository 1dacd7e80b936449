"""What `publish` reads: files and standard input, block by block, never whole.

An input counts what of it was taken: bytes, or rows of a Parquet file. Together with a
digest of just that part it is a position: another run recognises the same input, goes
on behind what was published, and refuses an input that has changed.
"""

from streamfactory.transfer.inputs.base import Input, InputOptions
from streamfactory.transfer.inputs.formats import FORMATS, open_input

__all__ = ["FORMATS", "Input", "InputOptions", "open_input"]
