"""The client side of MQTT: transport, TLS, signed messages. The only package with an MQTT library."""
