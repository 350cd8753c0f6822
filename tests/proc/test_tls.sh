# SPDX-License-Identifier: BSD-2-Clause
#
# TLS 1.3 on the control connection, with kv-server, kv-cli and openssl: who trusts whom, what is
# older, who speaks none, and certificates that are read again.
. tests/lib.sh

HEX=0123456789abcdef0123456789abcdef
printf 'app read-write %s%s\n' "$HEX" "$HEX" >"$DIR/tenants"
printf '%s%s\n' "$HEX" "$HEX" >"$DIR/secret"
chmod 600 "$DIR/tenants" "$DIR/secret"
export RKV_TENANT=app RKV_SECRET_FILE="$DIR/secret"

# certificate NAME: NAME.pem and NAME.key, of the CA ca
certificate()
{
	printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' >"$DIR/extensions"
	openssl req -newkey ed25519 -nodes -keyout "$DIR/$1.key" -out "$DIR/$1.csr" \
		-subj "/CN=$1" 2>/dev/null
	openssl x509 -req -in "$DIR/$1.csr" -CA "$DIR/ca.pem" -CAkey "$DIR/ca.key" \
		-CAcreateserial -out "$DIR/$1.pem" -days 30 -extfile "$DIR/extensions" 2>/dev/null
}

authority()
{
	openssl req -x509 -newkey ed25519 -nodes -keyout "$DIR/ca.key" -out "$DIR/ca.pem" \
		-subj "/CN=$1" -days 30 2>/dev/null
}

serve()
{
	RKV_SERVER_ARGS='--fabric soft' start_server --pool-size 8M --tenants "$DIR/tenants" "$@"
	export RKV_SERVER=$SERVER
}

read_again()
{
	grep -q 'read again' "$DIR/server.err"
}

cli()
{
	timeout 60 "$RKV_BUILD/kv-cli" "$@" 2>"$DIR/said"
}

# refused NAME PATTERN ARGUMENTS: kv-cli is not let in, and says why.
refused()
{
	local name=$1 pattern=$2
	shift 2
	if cli "$@" ping >/dev/null; then
		not_ok "$name" "it was let in"
	elif grep -q "$pattern" "$DIR/said"; then
		ok "$name"
	else
		not_ok "$name" "$(cat "$DIR/said")"
	fi
}

authority one
certificate server
certificate client
cp "$DIR/ca.pem" "$DIR/first-ca.pem"
own=(--tls-cert "$DIR/server.pem" --tls-key "$DIR/server.key")

serve "${own[@]}"
check "over TLS" cli --tls-ca "$DIR/ca.pem" put key value
for fabric in shm tcp; do
	is "data over $fabric" "$(cli --tls-ca "$DIR/ca.pem" --fabric "$fabric" get key)" \
		value
done
is "by a name" \
	"$(cli --server "localhost:${RKV_SERVER##*:}" --tls-ca "$DIR/ca.pem" get key)" value
refused "a client without TLS" "speaks TLS at this port"
refused "a CA that is another" "not trusted" --tls-ca "$DIR/client.pem"
refused "a name that is another" "hostname mismatch" --tls-ca "$DIR/ca.pem" --tls-name other
refused "no file" "No such file" --tls-ca "$DIR/none"
for version in 1_1 1_2; do
	check_not "TLS $version" openssl s_client -connect "$RKV_SERVER" "-tls$version" \
		-CAfile "$DIR/ca.pem" -verify_return_error </dev/null
done
check "TLS 1_3" openssl s_client -connect "$RKV_SERVER" -tls1_3 -CAfile "$DIR/ca.pem" \
	-verify_return_error </dev/null

# Certificates of another CA: for new connections, and without one lost in between.
authority two
certificate server
kill -HUP "$SERVER_PID"
wait_for 30 read_again
refused "the former CA, after SIGHUP" "not trusted" --tls-ca "$DIR/first-ca.pem"
is "the new one" "$(cli --tls-ca "$DIR/ca.pem" get key)" value
check "the server stops" stop_server

certificate client
serve "${own[@]}" --tls-ca "$DIR/ca.pem"
refused "no certificate where one is wanted" "certificate required" --tls-ca "$DIR/ca.pem"
check "a certificate" cli --tls-ca "$DIR/ca.pem" --tls-cert "$DIR/client.pem" \
	--tls-key "$DIR/client.key" put key value
check "the server stops" stop_server

serve
refused "TLS where there is none" "does not speak TLS" --tls-ca "$DIR/ca.pem"
check "and without it" cli ping
check "the server stops" stop_server

finish
