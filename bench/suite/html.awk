# SPDX-License-Identifier: BSD-2-Clause
#
# HTML of the Markdown that page.sh writes: headings, paragraphs, lists, tables, pictures, and
# within lines `code` and *emphasis*.
function escaped(text) {
	gsub(/&/, "\\&amp;", text)
	gsub(/</, "\\&lt;", text)
	while (match(text, /`[^`]*`/))
		text = substr(text, 1, RSTART - 1) "<code>" substr(text, RSTART + 1, RLENGTH - 2) \
			"</code>" substr(text, RSTART + RLENGTH)
	while (match(text, /\*[^*]*\*/))
		text = substr(text, 1, RSTART - 1) "<em>" substr(text, RSTART + 1, RLENGTH - 2) \
			"</em>" substr(text, RSTART + RLENGTH)
	return text
}

function enter(block) {
	if (open == block)
		return
	if (open)
		print "</" open ">"
	if (block)
		print "<" block ">"
	open = block
}

function cells(line, tag,    n, i, parts) {
	n = split(line, parts, "|")
	printf "<tr>"
	for (i = 2; i < n; i++)
		printf "<%s>%s</%s>", tag, escaped(parts[i]), tag
	print "</tr>"
}

BEGIN {
	print "<!doctype html><html lang=en><meta charset=utf-8><title>rkv measured</title><style>"
	print "body { font: 16px/1.5 sans-serif; max-width: 60em; margin: 2em auto }"
	print "table { border-collapse: collapse } td, th { padding: .2em .8em; text-align: right;"
	print "border-bottom: 1px solid #ccc } td:first-child { text-align: left }"
	print "img { max-width: 100% }</style>"
}

/^#/ {
	enter("")
	level = match($0, /[^#]/) - 1
	text = substr($0, level + 2)
	print "<h" level ">" escaped(text) "</h" level ">"
	next
}
/^!\[/ {
	enter("")
	match($0, /\([^)]*\)/)
	print "<img src=\"" substr($0, RSTART + 1, RLENGTH - 2) "\" alt=\"\">"
	next
}
/^\|[-|]*$/ { next }
/^\|/ {
	tag = open == "table" ? "td" : "th"
	enter("table")
	cells($0, tag)
	next
}
/^- / {
	enter("ul")
	print "<li>" escaped(substr($0, 3)) "</li>"
	next
}
/^$/ {
	enter("")
	next
}
{
	enter("p")
	print escaped($0)
}
END { enter("") }
