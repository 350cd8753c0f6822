# SPDX-License-Identifier: BSD-2-Clause
#
# For the lints. A rule is a function that prints a line for each violation in the tree it runs in.
# Each rule is shown to hold for the project and to catch what is planted in a tree of its own.
#
#   holds NAME RULE                 ok if RULE prints nothing here
#   catches NAME RULE FILE <<TEXT   ok if RULE prints something in a tree that has only FILE
#   accepts NAME RULE FILE <<TEXT   ok if it prints nothing there
#   plant FILE <<TEXT               one more file for the next of those two
#   files PATTERN...                the tree's files; a pattern is matched against the whole path
#   comments FILE / code FILE       "line:text" of a C file's comments, or of the rest
. tests/lib.sh
mkdir "$DIR/tree"

holds()
{
	is "$1" "$("$2" 2>&1)" ""
}

plant()
{
	mkdir -p "$DIR/tree/$(dirname "$1")"
	cat >"$DIR/tree/$1"
}

# Plants the file and runs the rule, in a tree that is empty afterwards.
rule_on_planted()
{
	plant "$2"
	(cd "$DIR/tree" && "$1" 2>&1)
	rm -rf "$DIR/tree"
	mkdir "$DIR/tree"
}

catches()
{
	local found
	found=$(rule_on_planted "$2" "$3")
	if [ -n "$found" ]; then
		ok "$1"
	else
		not_ok "$1" "the planted violation was not found"
	fi
}

accepts()
{
	is "$1" "$(rule_on_planted "$2" "$3")" ""
}

all_files()
{
	if [ -e .git ] && git ls-files --cached --others --exclude-standard 2>/dev/null; then
		return
	fi
	find . \( -path ./build -o -path ./.git \) -prune -o \( -type f -o -type l \) -printf '%P\n'
}

files()
{
	local path pattern
	all_files | sort | while read -r path; do
		for pattern in "$@"; do
			# shellcheck disable=SC2053 # it is a pattern
			if [[ $path == $pattern && -e $path ]]; then
				printf '%s\n' "$path"
				break
			fi
		done
	done
}

split_c()
{
	awk -v want="$1" '
	function put(part, text) { if (part == want) line = line text; else line = line " " }
	{
		line = ""
		for (rest = $0; rest != "";) {
			if (inside) {
				end = index(rest, "*/")
				n = end ? end + 1 : length(rest)
				inside = !end
				put("comments", substr(rest, 1, n))
			} else if (match(rest, /^\/\/.*/)) {
				n = RLENGTH
				put("comments", rest)
			} else if (rest ~ /^\/\*/) {
				inside = 1
				n = 2
				put("comments", "/*")
			} else {
				n = match(rest, /^"(\\.|[^"\\])*"/) ? RLENGTH : 1
				put("code", substr(rest, 1, n))
			}
			rest = substr(rest, n + 1)
		}
		if (line ~ /[^ \t]/) print FNR ":" line
	}' "$2"
}

comments()
{
	split_c comments "$1"
}

code()
{
	split_c code "$1"
}
