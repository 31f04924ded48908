"""The message broker: transport port, adapters, embedded broker and Mosquitto. The only package that knows MQTT."""
