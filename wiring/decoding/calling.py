"""Calls of decoders, with their results checked (rule D1)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamfactory.spi import ContractBroken, StreamError, UntranslatedError
from streamfactory.spi.computing import pc
from streamfactory.wiring.decoding.frames import with_frames

if TYPE_CHECKING:
    from streamfactory.spi import DecodeContext, Decoded, MessageDecoder


def call_decoder(
    decoder: MessageDecoder, values: pa.Array, context: DecodeContext
) -> Decoded:
    """Call a decoder, and check its result (rule D1).

    Raises:
        UntranslatedError: plugin; it raised.
        ContractBroken: plugin; its result is inconsistent.
        StreamError: Raised by the decoder about a resource, a schema registry for
            example.
    """
    try:
        decoded = decoder.decode(values, context)
    except StreamError:
        raise  # about a resource of the decoder, not about the data
    except Exception as error:
        what = f"the decoder raised {type(error).__name__}, which rule D1 forbids"
        broken = UntranslatedError(what, partition=context.partition)
        # Its text may be confidential: it is not pickled.
        broken.cause_text = type(error).__name__
        raise broken from error
    found = contradiction(decoded, len(values))
    if found is not None:
        msg = f"rule D1: {found}"
        raise ContractBroken(msg, partition=context.partition)
    if decoded.errors:
        named = with_frames(decoded.errors, values, decoder)
        return replace(decoded, errors=named)
    return decoded


def contradiction(decoded: Decoded, messages: int) -> str | None:
    """Return what is inconsistent in a decoder's result; None if nothing is."""
    rows, source = decoded.rows.num_rows, decoded.source
    bad = [error.message for error in decoded.errors]
    for misfit in decoded.misfits:
        found = misfit.rows.to_numpy()
        if len(found) and (np.diff(found, prepend=-1, append=rows) <= 0).any():
            return f"the indices of misfits are not ascending within 0 to {rows - 1}"
    if source is None:
        if rows != messages or bad:
            return f"{rows} rows for {messages} messages, {len(bad)} of them bad"
        return None
    if len(source) != rows or source.null_count:
        return f"{rows} rows have {len(source)} sources, {source.null_count} null"
    steps = np.diff(source.to_numpy(), prepend=0, append=messages - 1)
    if rows and (steps < 0).any():
        return f"the sources are not ascending within 0 to {messages - 1}"
    if len(set(bad)) < len(bad) or not all(0 <= index < messages for index in bad):
        return f"the bad messages are not distinct indices below {messages}"
    if bad and pc.any(pc.is_in(source, pa.array(bad, source.type))).as_py():
        return "a message is bad and has rows"
    return None
