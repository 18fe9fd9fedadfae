# Results as a table of Markdown. In: lines of IP version, what was done, and how it went, with tabs
# between.

BEGIN { FS = "\t" }

!($2 in seen) {
    seen[$2] = 1
    rows[++count] = $2
}

{ cell[$2, $1] = $3 }

END {
    print "| | IPv4 | IPv6 |"
    print "|---|---|---|"
    for (i = 1; i <= count; i++)
        printf "| %s | %s | %s |\n", rows[i], cell[rows[i], "ipv4"], cell[rows[i], "ipv6"]
}
