#!/bin/sh
# Make what a fleet needs before its first start, once: authority, identities, the broker's configuration. Run again, it
# keeps what is there and adds the vehicles that are new.
set -eu

ca=${GLASSFLEET_CA_DIR:-/srv/ca}
identities=${IDENTITIES:-/srv/identities}
broker=${BROKER_DIR:-/srv/broker}
host=${BROKER_HOST:-broker}
port=${BROKER_PORT:-8883}
vehicles=${VEHICLES:-vehicle-1 vehicle-2 vehicle-3}

[ -e "$ca/ca.pem" ] || glassfleet ca init "$ca"

if [ ! -e "$identities/broker/cert.pem" ]; then
    glassfleet ca issue --ca-dir "$ca" --broker broker --host "$host" --host localhost --out "$identities/broker"
fi
if [ ! -e "$identities/coordinator/cert.pem" ]; then
    glassfleet ca issue --ca-dir "$ca" --coordinator coordinator --host coordinator --host localhost --out "$identities/coordinator"
fi
# On real vehicles the key never leaves: `glassfleet agent enrol` with a token. Here all of them share this machine.
for vehicle in $vehicles; do
    if [ ! -e "$identities/$vehicle/cert.pem" ]; then
        glassfleet ca issue --ca-dir "$ca" --agent "$vehicle" --out "$identities/$vehicle"
    fi
done

# Lists expire, and a broker with an expired one refuses everybody: a new one with every start.
glassfleet ca crl --ca-dir "$ca" --out "$identities/broker/crl.pem"

# Written once: the access rules may since name vehicles that were shut out (`glassfleet broker reload --deny`).
if [ ! -e "$broker/mosquitto.conf" ]; then
    glassfleet broker config --tls "$identities/broker" --host 0.0.0.0 --port "$port" --out "$broker/mosquitto.conf"
fi
echo "ready: $identities, $broker/mosquitto.conf"
