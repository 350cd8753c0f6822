# SPDX-License-Identifier: BSD-2-Clause
#
# Prints a source as a mutant has it:   awk -v name=NAME -v file=FILE -f apply.awk table FILE
#
# An edit whose old text does not occur exactly once is an error, so that the table cannot rot while
# the code moves on.

function die(text)
{
	printf "%s: %s: %s\n", ARGV[1], name, text >"/dev/stderr"
	failed = 1
	exit 1
}

function line_of(text, so_far)
{
	return so_far == "" ? text : so_far "\n" text
}

FNR == NR {
	if ($1 == "mutant")
		is_ours = $2 == name
	else if ($1 == "edit" && is_ours && $2 == file)
		n++
	if ($1 == "edit")
		is_edit = is_ours && $2 == file
	if (is_ours && is_edit && /^</)
		old[n] = line_of(substr($0, 2), old[n])
	else if (is_ours && is_edit && /^>/)
		new[n] = line_of(substr($0, 2), new[n])
	next
}

{ source = source $0 "\n" }

END {
	if (failed)
		exit 1
	if (!n)
		die("there is no edit of " file)
	for (i = 1; i <= n; i++) {
		at = index(source, old[i])
		if (old[i] == "" || !at)
			die("edit " i " of " file ": its old text is not there")
		rest = substr(source, at + length(old[i]))
		if (index(rest, old[i]))
			die("edit " i " of " file ": its old text is there more than once")
		source = substr(source, 1, at - 1) new[i] rest
	}
	printf "%s", source
}
