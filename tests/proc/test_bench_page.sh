# SPDX-License-Identifier: BSD-2-Clause
#
# The page of make bench, made of rows that nobody measured: medians, the lowest and the highest,
# ratios, and everything that the page points to.
. tests/lib.sh

command -v gnuplot >/dev/null || skip_all "gnuplot is not installed"

OUT=$DIR/bench
mkdir "$OUT"
printf 'processor: 2 x <fast> & small\nload before: 0.00\n' >"$OUT/machine.txt"

# rows EXPERIMENT X SYSTEM OPERATION RATE...: one round for each rate.
rows()
{
	local round=0 rate
	for rate in "${@:5}"; do
		round=$((round + 1))
		echo "$1,$2,$3,$4,$round,$rate,0.4,0.1,$((round * 10)),99"
	done >>"$OUT/rows.csv"
}

for operation in GET UPDATE; do
	rows peers 0 'rkv shm' $operation 300 100 200
	rows peers 0 memcached $operation 7 5 6 8
	rows tcp 100 'rkv tcp' $operation 900
	rows tcp 1000 'rkv tcp' $operation 400
	rows sizes 16 'rkv shm' $operation 30
	rows sizes 16 'raw shm' $operation 60
	rows sizes 1024 'rkv shm' $operation 10
	rows sizes 1024 'raw shm' $operation 40
	rows cache warm 'rkv shm' $operation 20
	rows cache cold 'rkv shm' $operation 10
done
rows peers 0 idle GET 1000
rows workloads a 'rkv shm' a 50
rows depth-2 1 'rkv shm' GET 5
rows depth-2 4 'rkv shm' GET 9
rows rates 10 'rkv shm' GET 5
rows rates 90 'rkv shm' GET 45

check "a page is made" bench/suite/page.sh "$OUT"
line()
{
	grep -m 1 -F "| $1 |" "$OUT/README.md"
}
is "the median of an odd number, and its spread" "$(line 'rkv shm GET')" \
	"| rkv shm GET | 200 | 100 to 300 | 20.0 | 99.0 | 0.400 | 0.100 | 2000000 | 1.000 |"
is "and of an even one" "$(line 'memcached GET' | cut -d'|' -f3,4)" " 6 | 5 to 8 "
is "over TCP, a table for each size" "$(grep -F '| rkv tcp GET |' "$OUT/README.md" |
	cut -d'|' -f3 | tr '\n' ' ')" " 900   400  "
is "how much of the bare fabric" "$(line 16)" "| 16 | 30 | 60 | 50 % |"
is "for each size" "$(line 1024)" "| 1024 | 10 | 40 | 25 % |"
is "every picture is there" "$(sed -n 's/^!\[.*(\(.*\))$/\1/p' "$OUT/README.md" |
	while read -r file; do grep -c '</svg>' "$OUT/$file"; done | tr '\n' ' ')" "1 1 1 "
is "HTML points to the same" "$(grep -c '<img src="[a-z0-9-]*\.svg"' "$OUT/index.html")" 3
is "as many tables open as close" "$(grep -c '<table>' "$OUT/index.html")" \
	"$(grep -c '</table>' "$OUT/index.html")"
check "what HTML needs escaped is" grep -q '&lt;fast> &amp; small' "$OUT/index.html"
is "four curves of two points, and one each in the key" \
	"$(grep -oE "<use [^>]*#gpPt[0-9]+.[^>]*translate" "$OUT/sizes.svg" | wc -l)" 12
check_not "no page without rows" bench/suite/page.sh "$DIR/nowhere"
finish
