//! `roce stats` and `roce dump -Y` as a user runs them, on golden captures.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod roce;

use roce::{error, golden, json, lines};

#[test]
fn statistics_of_a_lossy_capture_count_its_retransmissions_and_naks() {
    let file = golden("rxe/loss_send_middle.pcap");
    let file = file.to_str().unwrap();
    let stats = &json(&["stats", "--json", file])[0];
    assert_eq!((&stats["version"], &stats["packets"]), (&1.into(), &81.into()));
    let conversation = &stats["conversations"][0];
    assert_eq!(
        (&conversation["a"], &conversation["b"]),
        (&"10.77.0.2".into(), &"10.77.0.3".into())
    );
    assert_eq!(
        (&conversation["requests_of_a"], &conversation["requests_of_b"]),
        (&65.into(), &0.into())
    );
    // `pcap/captures/MANIFEST.md` has the counts.
    let opcodes: Vec<_> = stats["opcodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["packets"].as_u64().unwrap())
        .collect();
    assert_eq!(opcodes, [6, 43, 16, 16]);
    assert_eq!(
        stats["sizes"],
        serde_json::json!([{
            "conversation": 1, "requester": conversation_side(conversation, "a"), "operation": "SEND", "size": 5000, "messages": 6,
        }])
    );
    assert_eq!(stats["naks"][0]["naks"], 10);
    assert_eq!(
        (&stats["recovery"][0]["by_nak"], &stats["recovery"][0]["by_timeout"]),
        (&20.into(), &15.into())
    );
    assert_eq!(stats["latencies"][0]["count"], 6);
    assert_eq!(
        (&stats["intervals"][0]["packets"], &stats["intervals"][0]["roce_share"]),
        (&81.into(), &1.0.into())
    );
    let text = lines(&["stats", file]).join("\n");
    for part in [
        "81 packets in 343 ms, 81 of RoCEv2",
        "\nconversations\n",
        "RC SEND_MIDDLE",
        "\nlatencies\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

fn conversation_side(conversation: &serde_json::Value, side: &str) -> String {
    let qp = conversation[format!("{side}_qp")].as_str().unwrap();
    format!("{} qp {qp}", conversation[side].as_str().unwrap())
}

#[test]
fn statistics_have_the_handshake_of_the_connection_managers() {
    let file = golden("rxe/cm_rping.pcap");
    let stats = &json(&["stats", "--json", file.to_str().unwrap()])[0];
    let messages: Vec<_> = stats["cm"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["message"].as_str().unwrap())
        .collect();
    assert_eq!(messages, ["DREP", "DREQ", "REP", "REQ", "RTU"]);
    let handshake = &stats["handshakes"][0];
    assert_eq!(handshake["active_side"], "10.77.0.2");
    assert!(handshake["rep_ns"].as_u64().unwrap() > 0);
}

#[test]
fn one_table_as_csv_has_one_header() {
    let file = golden("rxe/loss_send_middle.pcap");
    let csv = lines(&["stats", "--table", "opcodes", "--format", "csv", file.to_str().unwrap()]);
    assert_eq!(csv.len(), 5);
    assert_eq!(csv[0], "file,table,opcode,name,packets,share,payload_bytes");
    assert!(csv[1].ends_with(",opcodes,0x00,RC SEND_FIRST,6,0.074074,6144"), "{}", csv[1]);
}

#[test]
fn display_filter_selects_packets_by_fields() {
    let file = golden("rxe/loss_send_middle.pcap");
    let file = file.to_str().unwrap();
    let numbers = |filter: &str| {
        lines(&["dump", "-Y", filter, "-T", "fields", "-e", "frame.number", file]).join(" ")
    };
    let naks = "12 17 27 32 42 47 57 62 72 77";
    assert_eq!(numbers("infiniband.aeth.syndrome.opcode == 3"), naks);
    assert_eq!(
        numbers(
            "infiniband.aeth && !(infiniband.aeth.syndrome.error_code != 0) and not infiniband.aeth.syndrome.opcode in {0..2}"
        ),
        naks
    );
    assert_eq!(
        numbers("frame.number in {1, 3..4} or frame.number == 7 && ip.src == 10.77.0.2"),
        "1 3 4 7"
    );
    assert_eq!(numbers("ip.addr != 10.77.0.2"), "");
    assert_eq!(numbers("ip.addr ~= 10.77.0.2 && frame.number < 3"), "1 2");
    let fields = lines(&[
        "dump",
        "-T",
        "fields",
        "-e",
        "infiniband.bth.destqp",
        "-e",
        "ip.addr",
        "-e",
        "infiniband.immdt",
        file,
    ]);
    assert_eq!(fields[0], "0x000058\t10.77.0.2,10.77.0.3\t");
    let list = lines(&[
        "dump",
        "-T",
        "json",
        "-Y",
        "frame.number == 1",
        "-e",
        "infiniband.bth.opcode",
        file,
    ])
    .join("");
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert_eq!(
        list,
        serde_json::json!([{ "_source": { "layers": { "infiniband.bth.opcode": ["0"] } } }])
    );
}

#[test]
fn errors_of_a_display_filter_name_the_column_and_what_is_expected() {
    for (filter, expected) in [
        (
            "infiniband.bth.destqp == eleven",
            "column 26: found `eleven`, expected a number of at most 24 bits",
        ),
        (
            "infiniband.bth.opcode == 300",
            "column 26: found `300`, expected a number of at most 8 bits",
        ),
        (
            "bth.destqp == 1",
            "column 1: found `bth.destqp`, expected a field such as infiniband.bth.destqp",
        ),
        ("udp && (ip", "column 11: found the end, expected `)`"),
        ("ip.src == 10.0.0.0/40", "column 11: found `10.0.0.0/40`, expected an IPv4 address"),
        ("udp == 1", "expected no value: udp is a header"),
        ("frame.number in {1 2}", "column 20: found `2`, expected `,` or `}`"),
        ("frame.number = 1", "column 14: found '='"),
        ("", "column 1: found the end, expected a field"),
    ] {
        let text = error(&["dump", "-Y", filter, "x.pcap"]);
        assert!(text.contains(expected), "{filter}: {text}");
    }
    for deep in ["(".repeat(100_000), "!".repeat(100_000), "udp && ".repeat(100_000)] {
        let text =
            deep.parse::<softroce_pcap::display_filter::DisplayFilter>().unwrap_err().to_string();
        assert!(text.contains("expected at most"), "{text}");
    }
}
