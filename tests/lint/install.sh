# SPDX-License-Identifier: BSD-2-Clause
#
# What `make install` puts down is enough for a stranger: a program that uses every function is
# built with nothing but pkg-config, with the shared library and with the static one.
. tests/lint/lint.sh

case $RKV_BUILD in
*/build) ;;
*) skip_all "only the plain build is installed here" ;;
esac

check "make install" env MAKEFLAGS= make -s install DESTDIR="$DIR/to" PREFIX=/usr
is "what is installed" \
	"$(cd "$DIR/to/usr" && find . ! -type d ! -path './share/man/*' | sort)" \
	"./bin/kv-bench
./bin/kv-cli
./bin/kv-server
./include/rkv.h
./lib/librkv.a
./lib/librkv.so
./lib/librkv.so.0
./lib/librkv.so.0.1.0
./lib/pkgconfig/librkv.pc
./share/doc/rkv/kv-server.conf
./share/doc/rkv/kv-server.service"
is "each man page is installed" \
	"$(cd "$DIR/to/usr/share/man" && ls -d man?/*.? | cut -d/ -f2 | sort)" \
	"$(cd client/man && ls -d *.? | sort)"

{
	echo '#include <rkv.h>'
	echo 'typedef void (*function)(void);'
	echo 'extern const function all[];'
	echo 'const function all[] = {'
	sed -n 's/^\t\(rkv_.*\);/	(function)\1,/p' client/librkv.map
	echo '};'
	echo 'int main(void) { return all[0] == 0 || rkv_version()[0] == 0; }'
} >"$DIR/user.c"

# As if $DIR/to were the root of the file system.
flags_of()
{
	PKG_CONFIG_LIBDIR="$DIR/to/usr/lib/pkgconfig:$(pkg-config --variable pc_path pkg-config)" \
		PKG_CONFIG_SYSROOT_DIR="$DIR/to" PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 \
		PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 pkg-config "$@" librkv
}

read -ra shared < <(flags_of --cflags --libs)
read -ra static < <(flags_of --static --cflags --libs)
check "a program is built with the shared library" \
	"${CC:-gcc}" "$DIR/user.c" -o "$DIR/user" "${shared[@]}"
check "and runs" env LD_LIBRARY_PATH="$DIR/to/usr/lib" "$DIR/user"
check "a program is built with the static library" \
	"${CC:-gcc}" "$DIR/user.c" -o "$DIR/user-static" "${static[@]/-lrkv/-l:librkv.a}"
check "and runs, with no library to be found" env LD_LIBRARY_PATH= "$DIR/user-static"

finish
