"""RabbitMQ with its MQTT plugin: the generated configuration.

RabbitMQ clusters and is what many clouds already run, so the conformance suite runs against it. What Debian's 3.10
cannot do is listed in ``docs/reference/brokers.md``; the gravest: a retained message reaches only subscribers that name
its topic in full.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets

from broker.servers.config import USER, BrokerConfig


def rabbitmq_hash(password: str) -> str:
    """Hash for a definitions file: base64 of salt and SHA-512(salt, password); the salt has 4 bytes."""
    salt = secrets.token_bytes(4)
    return base64.b64encode(salt + hashlib.sha512(salt + password.encode()).digest()).decode()


class RabbitmqConfig(BrokerConfig):
    """``rabbitmq.conf``, and beside it the user definitions and ``enabled_plugins``."""

    def render(self) -> str:
        """Give the text of ``rabbitmq.conf``."""
        if self.cert is None:
            listener = [f"mqtt.listeners.tcp.1 = {self.host}:{self.port}"]
        else:
            listener = [
                "mqtt.listeners.tcp = none",
                f"mqtt.listeners.ssl.1 = {self.host}:{self.port}",
                f"ssl_options.certfile = {self.cert}",
                f"ssl_options.keyfile = {self.key}",
                "ssl_options.versions.1 = tlsv1.2",
                "ssl_options.versions.2 = tlsv1.3",
            ]
        return (
            "\n".join(
                [
                    "# Written by glassfleet; see docs/reference/brokers.md for the reason of each line.",
                    "# Beside it: enabled_plugins with the line [rabbitmq_mqtt].",
                    "listeners.tcp = none",
                    *listener,
                    "mqtt.allow_anonymous = false",
                    "mqtt.vhost = /",
                    "mqtt.exchange = amq.topic",
                    "mqtt.prefetch = 100",
                    "mqtt.subscription_ttl = 604800000",
                    "mqtt.tcp_listen_options.nodelay = true",
                    "mqtt.tcp_listen_options.backlog = 4096",
                    "mqtt.retained_message_store = rabbit_mqtt_retained_msg_store_dets",
                    f"max_message_size = {self.max_message_bytes}",
                    f"load_definitions = {self.state_dir / 'definitions.json'}",
                    "log.console = true",
                    "log.console.level = warning",
                    "log.file = false",
                ]
            )
            + "\n"
        )

    def beside(self, password: str) -> dict[str, str]:
        """Give the texts of the user definitions and of ``enabled_plugins``."""
        return {
            "definitions.json": render_definitions(password, self.max_queued_bytes),
            "enabled_plugins": "[rabbitmq_mqtt].\n",
        }


def render_definitions(password: str, max_queued_bytes: int) -> str:
    """Give the text of the definitions file: one user, who may use the topics ``gf/1/#`` and nothing else.

    MQTT's ``/`` is AMQP's ``.`` in a routing key. The user may declare and use the queues of MQTT sessions only. Each
    of these keeps so many bytes; the oldest message gives way.
    """
    queues = "^mqtt-subscription-.*"
    allowed = {"configure": queues, "write": f"{queues}|^amq\\.topic$", "read": f"{queues}|^amq\\.topic$"}
    topics = {"exchange": "amq.topic", "write": "^gf\\.1\\..*", "read": "^gf\\.1\\..*"}
    user = {
        "name": USER,
        "password_hash": rabbitmq_hash(password),
        "hashing_algorithm": "rabbit_password_hashing_sha512",
        "tags": [],
    }
    value = {
        "users": [user],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": USER, "vhost": "/", **allowed}],
        "policies": [
            {
                "vhost": "/",
                "name": "sessions",
                "pattern": queues,
                "apply-to": "queues",
                "priority": 0,
                "definition": {"max-length-bytes": max_queued_bytes},
            }
        ],
        "topic_permissions": [{"user": USER, "vhost": "/", **topics}],
    }
    return json.dumps(value, indent=2) + "\n"
