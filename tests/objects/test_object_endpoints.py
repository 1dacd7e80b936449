"""An endpoint without TLS has to be wanted."""

from __future__ import annotations

import pytest

from streamfactory.spi import ConfigError
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.streams.stream import open_stream

OPTIONS = {
    "streamType": "file",
    "stream.file.path": "s3://bucket/streams",
    "stream.file.storage.endpoint": "http://127.0.0.1:1",
    "stream.file.storage.access.key": "${env:PATH}",
    "stream.file.storage.secret.key": "${env:PATH}",
}
PROBLEM = (
    "stream.file.storage.endpoint: is not encrypted: keys and rows could "
    "be read on the network; use https://, or set "
    "stream.file.storage.allow.http=true [argument]"
)


@pytest.mark.parametrize("opened", [open_stream, open_sink])
def test_plain_http_is_refused_with_the_option_that_allows_it(opened: object) -> None:
    assert callable(opened)
    with pytest.raises(ConfigError) as caught, opened(OPTIONS) as stream:
        stream.schema  # noqa: B018 - a sink connects with its first row
    assert [str(problem) for problem in caught.value.problems] == [PROBLEM]
