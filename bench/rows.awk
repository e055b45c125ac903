# Shows the rows of a benchmark, as a table or (-v output=json) as JSON. They come as tab-separated case,
# measured ("-": nothing says it), unit, ceiling, its name[, peer, its name]. A rate is better when higher; a time, what
# something takes in steps or bytes, and a regret, when lower.
function number(x) { return x == "-" ? x : x >= 100 ? sprintf("%.0f", x) : sprintf("%.3g", x) }
function ratio(ours, theirs, unit) { return unit ~ /^((ns|us|ms|s)(\/|$)|(steps|MB|regret)$)/ ? theirs / ours : ours / theirs }
BEGIN {
    FS = "\t"
    if (output == "json") printf "["
    else printf "%-84s %12s %-10s %12s %6s  %-28s %12s %7s\n", "case", "measured", "unit", "ceiling", "share", "ceiling is", "peer", "ratio"
}
NF == 2 && output != "json" { printf "%-84s %s\n", $1, $2; fflush() } # skipped, and why
NF >= 3 {
    share = $4 > 0 ? sprintf("%.0f%%", 100 * ratio($2, $4, $3)) : "-"
    times = $6 > 0 ? sprintf("%.2fx", ratio($2, $6, $3)) : "-"
    if (output == "json") {
        printf "%s\n  {\"case\": \"%s\", \"measured\": %s, \"unit\": \"%s\"", rows++ ? "," : "", $1, ($2 == "-" ? "null" : $2), $3
        if ($4 > 0) printf ", \"ceiling\": %s, \"ceiling_is\": \"%s\", \"share\": %.3f", $4, $5, ratio($2, $4, $3)
        if ($6 > 0) printf ", \"peer\": %s, \"peer_is\": \"%s\", \"ratio\": %.3f", $6, $7, ratio($2, $6, $3)
        printf "}"
    } else
        printf "%-84s %12s %-10s %12s %6s  %-28s %12s %7s\n", $1, number($2), $3, ($4 > 0 ? number($4) : "-"), share, $5, ($6 > 0 ? number($6) : "-"), times
    fflush()
}
END { if (output == "json") printf "\n]\n" }
