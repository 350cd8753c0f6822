# SPDX-License-Identifier: BSD-2-Clause
#
# The kernel and the root file system of the virtual machine, made of the distribution's packages:
# sourced by vm.sh. Any machine that runs Debian or Ubuntu can boot one, whatever its own kernel
# lacks; nothing of it is installed.
#
#   image_make   sets IMAGE, the folder with vmlinuz and base.cpio; IMAGE_REASON and status 1 if it
#                cannot be had
#
# The root holds a few programs of the distribution, the provider that libibverbs loads at run time,
# and the modules with what they need, named in the order of loading by /modules/order. Programs
# under test come in a second archive, vm.sh.
#
# Images are kept outside the tree, in $XDG_CACHE_HOME/rkv-vm, under the kernel's version and a hash
# of everything else that goes into them. The one before is removed when a new one is made.
IMAGE= IMAGE_REASON=
IMAGE_CACHE=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/rkv-vm
PATH=$PATH:/usr/sbin:/sbin

# crc32_generic comes first: rxe asks for it by name when a device is added.
image_modules='crc32_generic rdma_rxe rdma_ucm ib_uverbs dummy veth bridge sch_netem'
image_programs='busybox bash ip tc rdma setpriv'
# What the C library loads when a thread is cancelled or ends by pthread_exit.
image_libraries='libgcc_s.so.1'

image_fail()
{
	IMAGE_REASON=$*
	return 1
}

# The kernel's packages, by the name of its newest version: Debian's image holds the modules,
# Ubuntu's are in packages of their own.
image_packages()
{
	local kernel release
	kernel=$(apt-cache depends linux-image-amd64 linux-image-generic 2>/dev/null |
		sed -n 's/^ *Depends: linux-image-\([0-9]\)/\1/p' | head -n 1)
	[ -n "$kernel" ] || return 1
	for release in image modules modules-extra; do
		apt-cache show --no-all-versions "linux-$release-$kernel" 2>/dev/null |
			sed -n 's/^Package: //p'
	done
}

image_versions()
{
	apt-cache show --no-all-versions "$@" 2>/dev/null |
		sed -n 's/^Package: linux-[a-z]*-//p; s/^Version: //p' | paste -s -d_ |
		tr -c 'a-z0-9._+\n-' _
}

# Every file that goes into the root beside the modules.
image_files()
{
	local program library
	for program in $image_programs; do
		command -v "$program" || return 1
	done
	for library in $image_libraries; do
		ldconfig -p | sed -n "s|^\t$library .*x86-64.* => ||p" | head -n 1
	done
	find /usr/lib/*/libibverbs -name 'librxe-*.so'
	echo /etc/libibverbs.d/rxe.driver
}

# Copies files to the same place under a root, with the libraries they need.
image_copy()
{
	local root=$1 file
	shift
	for file in "$@" $(ldd "$@" 2>/dev/null | grep -oE '/[^ :]+\.so[^ :]*' | sort -u); do
		[ ! -e "$root/$file" ] || continue
		mkdir -p "$root/$(dirname "$file")"
		cp -L "$file" "$root/$file"
	done
}

image_download()
{
	local to=$1
	shift
	(cd "$to" && apt-get -qq download "$@") >"$to/log" 2>&1
}

image_refresh()
{
	if [ "$(id -u)" = 0 ]; then
		apt-get -qq update
	else
		sudo -n apt-get -qq update
	fi >/dev/null 2>&1 </dev/null
}

# The files of the modules, in the order of loading. Newer kernels have crc32 built in.
image_modules_in()
{
	local from=$1 release module
	[ -d "$from/lib" ] || ln -s usr/lib "$from/lib"
	release=$(basename "$from"/lib/modules/*)
	depmod -b "$from" "$release" 2>/dev/null || return 1
	for module in $image_modules; do
		modprobe -d "$from" -S "$release" --show-depends "$module" 2>/dev/null ||
			[ "$module" = crc32_generic ] || return 1
	done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }'
	return "${PIPESTATUS[0]}"
}

# As files that a plain insmod takes.
image_add_modules()
{
	local root=$2 files file module
	files=$(image_modules_in "$1") || return 1
	mkdir -p "$root/modules"
	for file in $files; do
		module=$(basename "${file%%.ko*}").ko
		case $file in
		*.xz) xz -dc "$file" ;;
		*.zst) zstd -qdc "$file" ;;
		*) cat "$file" ;;
		esac >"$root/modules/$module" || return 1
		echo "$module" >>"$root/modules/order"
	done
}

image_pack()
{
	(cd "$1" && find . | cpio --quiet -o -H newc -R 0:0)
}

# Makes an image in a folder of its own, from the packages that were downloaded to it.
image_build()
{
	local in=$1 package
	mkdir -p "$in/from" "$in/root"/{bin,dev,etc,proc,sys,tmp}
	for package in "$in"/*.deb; do
		dpkg-deb -x "$package" "$in/from" || return 1
	done
	image_add_modules "$in/from" "$in/root" || return 1
	cp "$in/from"/boot/vmlinuz-* "$in/vmlinuz" || return 1
	# shellcheck disable=SC2046 # no blanks in them
	image_copy "$in/root" $(image_files)
	ln -sf "$(command -v busybox)" "$in/root/bin/busybox"
	image_pack "$in/root" >"$in/base.cpio" || return 1
	rm -rf "$in/from" "$in/root" "$in"/*.deb
}

# The packages in a new folder, whose name it prints; once more with a new list of packages, as an
# old one names files that are gone.
image_fetch()
{
	local new packages
	new=$(mktemp -d "$IMAGE_CACHE/new.XXXXXX")
	# shellcheck disable=SC2046 # a list
	image_download "$new" $(image_packages) ||
		{ image_refresh && image_download "$new" $(image_packages); } ||
		{ rm -rf "$new"; return 1; }
	echo "$new"
}

# The image of this kernel and these files; without network, one of another kernel and these files.
image_make_locked()
{
	local packages files new
	packages=$(image_packages) || { image_refresh; packages=$(image_packages); }
	# shellcheck disable=SC2046 # no blanks in them
	files=$(cat tests/vm/image.sh $(image_files) | sha256sum | cut -c 1-16)
	# shellcheck disable=SC2086 # a list
	IMAGE=$IMAGE_CACHE/$(image_versions $packages).$files
	[ ! -e "$IMAGE/base.cpio" ] || return 0
	if new=$(image_fetch); then
		image_build "$new" ||
			{ rm -rf "$new"; image_fail "unexpected packages: $packages"; return 1; }
		find "$IMAGE_CACHE" -mindepth 1 -maxdepth 1 -type d ! -path "$new" -exec rm -rf {} +
		mv "$new" "$IMAGE"
		return
	fi
	IMAGE=$(find "$IMAGE_CACHE" -maxdepth 2 -path "*.$files/base.cpio" -printf '%h\n' |
		head -n 1)
	[ -n "$IMAGE" ] || image_fail "no kernel: apt-get download linux-image-amd64 does not work"
}

image_make()
{
	local missing
	[ "$(uname -m)" = x86_64 ] ||
		{ image_fail "the virtual machine is x86-64 only"; return 1; }
	missing=$(deploy/deps.sh --check vm) ||
		{ image_fail "${missing//$'\n'/} (deploy/deps.sh vm installs it)"; return 1; }
	mkdir -p "$IMAGE_CACHE"
	exec 9>"$IMAGE_CACHE/lock"
	flock 9
	image_make_locked
	local status=$?
	exec 9>&-
	return $status
}
