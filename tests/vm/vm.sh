# SPDX-License-Identifier: BSD-2-Clause
#
# Runs tests in a virtual machine that has RDMA devices: sourced by the tests of this folder, after
# tests/lib.sh.
#
#   vm_test DEVICES ENTRY...   boots, sets up DEVICES (a function of devices.sh), lets tests/run run
#                              the entries, and gives each of their results as one of ours
#   vm_run DEVICES COMMAND     boots, sets up DEVICES, runs a shell command in the tree's copy; what
#                              it says comes to standard output; the status is the command's
#   vm_count_instructions      before these: a machine with one processor whose clock counts the
#                              instructions that it executes, 4 ns each, whatever else its host
#                              does: what depends on time repeats there
#
# In the machine /rkv is this tree as far as tests need it: the programs of RKV_BUILD in build/, and
# the scripts. RKV_VM_S bounds the time in seconds. RKV_VM_KVM=1 uses hardware virtualisation, which
# is faster and hangs on some hosts.
#
# What cannot run is skipped with the reason; in CI it fails.
. tests/vm/image.sh

VM_MEMORY=2G
VM_MACHINE=(-machine "accel=${RKV_VM_KVM:+kvm:}tcg" -smp 2)

vm_count_instructions()
{
	VM_MACHINE=(-accel tcg,thread=single -smp 1 -icount shift=2,sleep=off)
}

# The second archive: what is under test, the tests, and libraries that the first does not have.
vm_payload()
{
	local devices=$1 command=$2 root=$DIR/payload file
	mkdir -p "$root/rkv/build"
	cp tests/vm/init "$root/init"
	chmod 755 "$root/init"
	cp -R --parents tests/run tests/lib.sh tests/vm tests/proc tests/fabric deploy "$root/rkv"
	cp "$RKV_BUILD"/kv-* "$root/rkv/build"
	(cd "$RKV_BUILD" && cp --parents tests/{vm,proc,fabric}/* "$root/rkv/build") 2>/dev/null
	cat >"$root/rkv/command" <<-END
		export RKV_BUILD=/rkv/build V='${V-}'
		. tests/vm/devices.sh
		$devices || { echo "the devices cannot be set up"; exit 1; }
		$command
	END
	# shellcheck disable=SC2046 # no blanks in them
	image_copy "$root" $(find "$root/rkv/build" -type f -perm -1 |
		xargs ldd 2>/dev/null | grep -oE '/[^ :]+\.so[^ :]*' | sort -u)
	find "$root/rkv/build" -type f -perm -1 -exec strip -g {} + 2>/dev/null
	image_pack "$root"
}

# The clock is the hpet, since an emulated time stamp counter has been seen to run away; reading it
# is a system call.
# The processor has no fast "rep movsb": the kernel's memcpy would use it, by which Soft-RoCE
# copies, and the emulator would copy byte by byte, so that a READ could see a torn word. No network
# card does that, and every fabric promises that it does not happen.
vm_boot()
{
	cat "$IMAGE/base.cpio" "$1" >"$DIR/root.cpio" || return 1
	timeout "${RKV_VM_S:-1450}" qemu-system-x86_64 "${VM_MACHINE[@]}" \
		-cpu max,-erms,-fsrm -m "$VM_MEMORY" -nic none -nodefaults \
		-display none -no-reboot \
		-serial "file:$DIR/console" -serial stdio \
		-kernel "$IMAGE/vmlinuz" -initrd "$DIR/root.cpio" \
		-append "console=ttyS0 panic=-1 quiet clocksource=hpet" </dev/null 2>"$DIR/qemu"
}

vm_run()
{
	local status
	vm_payload "$1" "$2" >"$DIR/payload.cpio" || return 1
	vm_boot "$DIR/payload.cpio" | tee "$DIR/said"
	status=$(sed -n 's/^exit status //p' "$DIR/said" | tail -n 1)
	rm -rf "$DIR/payload" "$DIR/root.cpio" "$DIR/payload.cpio"
	[ -n "$status" ] || {
		echo "the virtual machine did not come to its end"
		cat "$DIR/qemu" "$DIR/console"
	}
	return "${status:-1}"
}

vm_unable()
{
	[ "${CI-}" != true ] || { not_ok "the virtual machine" "$IMAGE_REASON"; finish; }
	skip_all "$IMAGE_REASON"
}

vm_test()
{
	local devices=$1 status
	shift
	image_make || vm_unable
	vm_run "$devices" "tests/run @build $*" | sed 's/^/# /'
	status=${PIPESTATUS[0]}
	results_of "$DIR/said" "in the virtual machine"
	is "tests/run in the machine ended well" "$status" 0
}
