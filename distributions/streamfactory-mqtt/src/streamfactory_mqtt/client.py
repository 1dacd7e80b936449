"""Connections to a broker, and what its answers mean in the contract's errors."""

from __future__ import annotations

import ssl
import threading
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from streamfactory import spi

REFUSED: Final = frozenset({"Bad user name or password", "Not authorized", "Banned"})
"""Reasons that a retry cannot change."""
_TAKEN: Final = "Session taken over"


class Client:
    """One connection with a thread of paho's. Reconnects unless another took it over.

    Args:
        config: The stream's configuration.
        client_id: Empty for one that the broker chooses.
        manual: Whether the caller acknowledges each message.
    """

    def __init__(
        self, config: spi.StreamConfig, client_id: str = "", *, manual: bool = False
    ) -> None:
        self._config = config
        self.timeout = config["connection.timeout.millis"] / 1000
        self.error: spi.StreamError | None = None
        """Why it is not connected."""
        self._changed = threading.Condition()
        self._connected = False
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=paho.MQTTv5,
            manual_ack=manual,
        )
        self.paho.reconnect_delay_set(1, 30)
        self.paho.connect_timeout = self.timeout
        if config.given("user"):
            self.paho.username_pw_set(config["user"], config["password"])
        if config["tls"]:
            authority = config.get("tls.ca.file")
            self.paho.tls_set_context(ssl.create_default_context(cafile=authority))
        self.paho.on_connect = self._on_connect
        self.paho.on_disconnect = self._on_disconnect
        self.paho.on_subscribe = self._on_subscribe

    def open(self, clean: bool, properties: Properties | None = None) -> None:
        """Connect, and return when the broker has accepted.

        Raises:
            StreamError: NotAuthorized, ConnectionFailed or StreamTimeout; nothing is
                left open.
        """
        host, _, port = self._config["address"].rpartition(":")
        try:
            self.paho.connect(
                host.strip("[]"), int(port), clean_start=clean, properties=properties
            )
            self.paho.loop_start()
            self.wait()
        except BaseException:
            self.close()
            raise

    def wait(self) -> None:
        """Wait until it is connected, and subscribed.

        Raises:
            StreamError: As `open`.
        """
        with self._changed:
            ready = self._changed.wait_for(
                lambda: self._connected or self.error is not None, self.timeout
            )
        if self.error is not None:
            raise self.error
        if not ready:
            msg = f"the broker {self._config['address']} does not answer"
            raise spi.StreamTimeout(msg)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish with QoS 1; return when the broker has acknowledged.

        Raises:
            StreamError: ConnectionFailed or StreamTimeout.
        """
        sent = self.paho.publish(topic, payload, qos=1, retain=retain)
        try:
            sent.wait_for_publish(self.timeout)
        except (RuntimeError, ValueError) as error:
            raise spi.ConnectionFailed(str(error)) from error
        if not sent.is_published():
            msg = f"the broker did not acknowledge a message to {topic!r}"
            raise spi.StreamTimeout(msg)

    def close(self) -> None:
        """Disconnect; the session stays in the broker. Twice is allowed."""
        self.paho.disconnect()
        self.paho.loop_stop()

    def connected(self, session_present: bool) -> bool:
        """Called in paho's thread with each connection, before any message.

        Returns:
            Whether it sent subscriptions: `wait` then waits for them, too.
        """
        return False

    def _on_connect(self, _: Any, __: Any, flags: Any, reason: Any, ___: Any) -> None:
        if reason.is_failure:
            self._fail(_refusal(f"the broker refused the connection: {reason}", reason))
        elif not self.connected(flags.session_present):
            self._succeed()

    def _on_subscribe(
        self, _: Any, __: Any, ___: Any, reasons: list[ReasonCode], ____: Any
    ) -> None:
        bad = next((reason for reason in reasons if reason.is_failure), None)
        if bad is None:
            self._succeed()
        else:
            self._fail(_refusal(f"the broker refused a subscription: {bad}", bad))

    def _on_disconnect(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        if str(reason) == _TAKEN:
            msg = "another connection with the same client.id took over the session"
            self._fail(
                spi.ConnectionFailed(msg, remedy="give each process a client.id")
            )
        elif reason.is_failure:
            with self._changed:
                self._connected = False

    def _succeed(self) -> None:
        with self._changed:
            self.error, self._connected = None, True
            self._changed.notify_all()

    def _fail(self, error: spi.StreamError) -> None:
        with self._changed:
            self.error, self._connected = error, False
            self._changed.notify_all()
        self.paho.disconnect()  # ends paho's attempts to reconnect


def _refusal(msg: str, reason: object) -> spi.StreamError:
    if str(reason) in REFUSED:
        return spi.NotAuthorized(msg)
    return spi.ConnectionFailed(msg)


def session_properties(config: spi.StreamConfig) -> Properties:
    """What the broker keeps of a session, and sends of it at once."""
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = config["session.expiry.millis"] // 1000
    properties.ReceiveMaximum = config["receive.maximum"]
    properties.MaximumPacketSize = config["max.message.bytes"]
    return properties
