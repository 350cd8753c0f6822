# SPDX-License-Identifier: BSD-2-Clause
#
# Rows of one experiment, all rounds together: x,system,operation,rate,low,high,client CPU,server
# CPU,p50,p99, in the order in which they were first measured. Medians, each of its own column.
function median(list, n,    i, j, t, values) {
	n = split(list, values, " ")
	if (n == 0)
		return ""
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && values[j - 1] + 0 > values[j] + 0; j--) {
			t = values[j]
			values[j] = values[j - 1]
			values[j - 1] = t
		}
	return n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2
}

$1 == experiment {
	key = $2 "," $3 "," $4
	if (!(key in rates))
		order[n_keys++] = key
	rates[key] = rates[key] " " $6
	if (!(key in low) || $6 < low[key])
		low[key] = $6
	if ($6 > high[key])
		high[key] = $6
	for (i = 7; i <= 10; i++)
		others[key, i] = others[key, i] " " $i
}

END {
	for (k = 0; k < n_keys; k++) {
		key = order[k]
		line = key "," median(rates[key]) "," low[key] "," high[key]
		for (i = 7; i <= 10; i++)
			line = line "," median(others[key, i])
		print line
	}
}
