# What Rust's test harness prints, with --show-output, as lines of a name and how it went, with a tab
# between. The file is read twice: what a test says of itself comes after its result.

/^---- .* stdout ----$/ { speaker = $2 }

NR == FNR {
    if (/^not tried: /)
        excuse[speaker] = $0
    next
}

/^test .* \.\.\. / {
    verdict = $4 == "ok" ? "ok" : "FAILED"
    if (verdict == "ok" && $2 in excuse)
        verdict = excuse[$2]
    name = $2
    sub(/::/, ": ", name)
    gsub(/_/, " ", name)
    print name "\t" verdict
}
