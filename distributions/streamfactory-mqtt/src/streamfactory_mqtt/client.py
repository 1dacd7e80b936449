"""Connections to a broker, and what its answers mean in the contract's errors."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from streamfactory import spi

REFUSED: Final = frozenset({"Bad user name or password", "Not authorized", "Banned"})
"""Reasons that a retry cannot change."""
_LATER: Final = frozenset({"Quota exceeded", "Server busy", "Unspecified error"})
"""Reasons of a refused message that a retry may change."""
_TAKEN: Final = "Session taken over"
_LOOK: Final = 0.1
"""Seconds between two looks at whether a wait was ended."""
CLOSING: Final = 1.0
"""Seconds that closing may take."""


class _Paho(paho.Client):
    """Paho's client, where a refused PUBREC ends a message, as MQTT 5 has it.

    Paho 2.2 ignores its reason, and waits for an answer that does not come.
    """

    def _handle_pubrec(self) -> Any:
        packet = bytes(self._in_packet["packet"])
        mid = int.from_bytes(packet[:2], "big")
        if len(packet) > 2 and packet[2] >= 0x80:
            reason = ReasonCode(PacketTypes.PUBREC, identifier=packet[2])
            with self._out_message_mutex:
                if mid in self._out_messages:
                    nothing = Properties(PacketTypes.PUBREC)  # type: ignore[no-untyped-call]
                    return self._do_on_publish(mid, reason, nothing)
        return super()._handle_pubrec()


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
        self._lost: float | None = None
        """When the connection broke; None while there is one."""
        self._refused: dict[int, ReasonCode] = {}
        """By the identifier of a message, why the broker refused it."""
        self.paho = _Paho(
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
        self.paho.on_publish = self._on_publish

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

    @property
    def is_connected(self) -> bool:
        """Whether it can send now."""
        return self._connected and self.error is None

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

    def check_presence(self) -> None:
        """Refuse to wait for a broker that has been away for too long.

        The connection is still tried again: the next call may find it.

        Raises:
            ConnectionFailed: transient; it broke ``connection.timeout.millis`` ago.
        """
        lost = self._lost
        if lost is None or time.monotonic() - lost <= self.timeout:
            return
        address = self._config["address"]
        away = time.monotonic() - lost
        msg = f"the broker {address} has not answered for {away:.0f} s"
        raise spi.ConnectionFailed(
            msg, remedy="start the broker, or correct the address"
        )

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        retain: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Publish with QoS 1; return when the broker has accepted.

        Args:
            topic: Where.
            payload: What.
            retain: Whether the broker keeps it.
            timeout: Seconds; by default ``connection.timeout.millis``.

        Raises:
            StreamError: As `confirm`.
        """
        sent = self.paho.publish(topic, payload, qos=1, retain=retain)
        self.confirm(sent, topic, timeout=timeout)

    def confirm(
        self,
        sent: paho.MQTTMessageInfo,
        topic: str,
        *,
        woken: Callable[[], bool] = lambda: False,
        timeout: float | None = None,
    ) -> None:
        """Wait until the broker has accepted a message that was sent.

        Args:
            sent: The message.
            topic: Of it.
            woken: Whether to stop waiting.
            timeout: Seconds; by default ``connection.timeout.millis``.

        Raises:
            StreamError: ConnectionFailed, StreamTimeout or ClosedError: it may have
                been accepted. NotAuthorized, PermanentError or TransientError: the
                broker refused it.
        """
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while not _is_published(sent):
            if woken():
                msg = f"closed before the broker accepted a message to {topic!r}"
                raise spi.ClosedError(msg)
            if time.monotonic() > deadline:
                msg = f"the broker did not acknowledge a message to {topic!r}"
                raise spi.StreamTimeout(msg)
        reason = self._refused.pop(sent.mid, None)
        if reason is not None:
            raise _refused_message(topic, reason)

    def resume(self) -> None:
        """Connect again, in paho's thread and after a second: the broker then delivers
        again what it has not seen acknowledged."""
        with self._changed:
            self._connected = False
        found = self.paho.socket()
        if isinstance(found, socket.socket):
            with suppress(OSError):  # it is broken already
                found.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Disconnect; the session stays in the broker. Twice is allowed.

        Returns within a second: paho's thread may be connecting, and ends after that.
        """
        self.paho.disconnect()
        ending = threading.Thread(target=self.paho.loop_stop, daemon=True)
        ending.start()
        ending.join(CLOSING)

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
                self._lost = self._lost or time.monotonic()

    def _on_publish(self, _: Any, __: Any, mid: int, reason: Any, ___: Any) -> None:
        if reason.is_failure:
            self._refused[mid] = reason
        else:
            self._refused.pop(mid, None)

    def _succeed(self) -> None:
        with self._changed:
            self.error, self._connected, self._lost = None, True, None
            self._changed.notify_all()

    def _fail(self, error: spi.StreamError) -> None:
        with self._changed:
            self.error, self._connected = error, False
            self._changed.notify_all()
        self.paho.disconnect()  # ends paho's attempts to reconnect


def _is_published(sent: paho.MQTTMessageInfo) -> bool:
    """Whether the broker has answered, after a short wait for it.

    Raises:
        spi.ConnectionFailed: It was not sent.
    """
    try:
        sent.wait_for_publish(_LOOK)
        return sent.is_published()
    except (RuntimeError, ValueError) as error:
        raise spi.ConnectionFailed(str(error)) from error


def _refusal(msg: str, reason: object) -> spi.StreamError:
    if str(reason) in REFUSED:
        return spi.NotAuthorized(msg)
    return spi.ConnectionFailed(msg)


def _refused_message(topic: str, reason: object) -> spi.StreamError:
    msg = f"the broker refused a message to {topic!r}: {reason}"
    if str(reason) in REFUSED:
        remedy = "allow this user to publish there"
        return spi.NotAuthorized(msg, remedy=remedy)
    if str(reason) in _LATER:
        return spi.TransientError(msg)
    return spi.PermanentError(
        msg, remedy="change what the broker refuses, or its limit"
    )


def session_properties(config: spi.StreamConfig) -> Properties:
    """What the broker keeps of a session, and sends of it at once."""
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = config["session.expiry.millis"] // 1000
    properties.ReceiveMaximum = config["receive.maximum"]
    properties.MaximumPacketSize = config["max.message.bytes"]
    return properties
