"""The inputs of `publish`: files and standard input, read block by block.

An input counts the bytes, or rows of a Parquet file, that were read. With a digest of
that part this is its position: another run recognises the input, continues after the
published part, and refuses an input that has changed.
"""

from streamfactory.transfer.inputs.base import Input, InputOptions
from streamfactory.transfer.inputs.formats import FORMATS, open_input, open_inputs

__all__ = ["FORMATS", "Input", "InputOptions", "open_input", "open_inputs"]
