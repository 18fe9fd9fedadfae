//! The page of `roce analyze --html` in a browser: how fast it is, its keys and addresses, print.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "browser/capture.rs"]
mod capture;
#[path = "browser/devtools.rs"]
mod devtools;
mod roce;

use std::fs;
use std::path::PathBuf;

use devtools::Browser;
use roce::{golden, lines, scratch};
use serde_json::{Value, json};

/// Largest page of a million packets.
const MAX_PAGE_BYTES: u64 = 8_000_000;

/// Returns the page of a capture.
fn page(capture: &str) -> PathBuf {
    let page = PathBuf::from(capture).with_extension("html");
    let page = scratch(page.file_name().unwrap().to_str().unwrap());
    lines(&["analyze", "--html", page.to_str().unwrap(), capture]);
    page
}

/// Returns the page of a capture with many connections.
fn page_of(name: &str, packets: u64, connections: u32) -> PathBuf {
    let file = scratch(name);
    capture::write(&file, packets, connections);
    let page = page(file.to_str().unwrap());
    fs::remove_file(file).unwrap();
    page
}

/// Moves and zooms the charts in each of 60 frames; returns the milliseconds from frame to frame, sorted.
const FRAMES: &str = "
    (async () => {
        const frame = () => new Promise((done) => requestAnimationFrame(done));
        const times = [];
        let before = await frame();
        for (let i = 0; i < 60; i++) {
            if (i % 10 === 0) showAll();
            else if (i % 2) zoom(0.8);
            else move(0.05);
            const now = await frame();
            times.push(now - before);
            before = now;
        }
        return times.sort((a, b) => a - b);
    })()";

#[test]
#[ignore = "needs Debian's chromium: tools/ci.sh pages"]
fn page_of_a_million_packets_is_small_and_opens() {
    for connections in [1, 64] {
        let page = page_of(&format!("browser-{connections}.pcapng"), 1_000_000, connections);
        let bytes = fs::metadata(&page).unwrap().len();
        let mut browser = Browser::start();
        browser.open(&page, "");
        let drawn = browser.evaluate("performance.getEntriesByName('drawn')[0].startTime");
        let drawn = drawn.as_f64().unwrap();
        let frames = browser.evaluate(FRAMES);
        let frames: Vec<_> =
            frames.as_array().unwrap().iter().map(|ms| ms.as_f64().unwrap()).collect();
        let tasks = browser.evaluate("tasks");
        let longest =
            tasks.as_array().unwrap().iter().filter_map(Value::as_f64).fold(0.0, f64::max);
        let (median, last) = (frames[frames.len() / 2], frames[frames.len() - 1]);
        println!(
            "{connections} connections: {bytes} bytes, drawn after {drawn:.0} ms, longest task {longest:.0} ms, frames of \
             {median:.1} ms, {last:.1} ms at most"
        );
        assert!(bytes < MAX_PAGE_BYTES, "{bytes} bytes");
        assert_eq!(browser.complaints, [""; 0]);
    }
}

/// Connection and side from 0, marked moment, and what is in sight.
const PLACE: &str =
    "({ flow: state.flow, stream: state.stream, mark: state.mark, from: state.t0, to: state.t1 })";

/// Waits until the address is written, which happens a moment after a change.
const WRITTEN: &str = "new Promise((done) => setTimeout(() => done(location.hash), 400))";

#[test]
#[ignore = "needs Debian's chromium: tools/ci.sh pages"]
fn address_leads_to_a_moment_of_a_connection_and_back() {
    let page = page_of("browser-address.pcapng", 30_000, 12);
    let mut browser = Browser::start();
    browser.open(&page, "#conn=3&t=0.012");
    let place = browser.evaluate(PLACE);
    let time = |name: &str| place[name].as_f64().unwrap();
    assert_eq!((&place["flow"], &place["mark"]), (&json!(2), &json!(12_000_000)));
    assert!(
        time("from") < 12e6 && time("to") > 12e6 && time("to") - time("from") < 20e6,
        "{place}"
    );
    // Another connection, by a link of the table, as a click or a screen reader follows it.
    browser.evaluate("document.querySelector('#flow4 a').click()");
    browser.evaluate(WRITTEN);
    assert_eq!(browser.evaluate(PLACE)["flow"], 4);
    assert_eq!(browser.evaluate("location.hash"), "#conn=5");
    browser.evaluate("mark(state.first + 1e6)");
    let marked = browser.evaluate(WRITTEN).as_str().unwrap().to_owned();
    assert!(marked.starts_with("#conn=5&t=0.001"), "{marked}");
    let back = "new Promise((done) => { addEventListener('popstate', () => done(location.hash), { once: true }); history.back(); })";
    assert_eq!(browser.evaluate(back), "#conn=5");
    assert_eq!(browser.evaluate(PLACE)["mark"], Value::Null);
    let first = browser.evaluate(back);
    assert!(first.as_str().unwrap().starts_with("#conn=3&t=0.012"), "{first}");
    assert_eq!(browser.evaluate(PLACE)["flow"], 2);
    // Nonsense shows the first connection.
    browser.open(&page, "#conn=99&side=x&t=soon&from=2&to=1");
    assert_eq!(browser.evaluate(PLACE)["flow"], 0);
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
#[ignore = "needs Debian's chromium: tools/ci.sh pages"]
fn keys_move_zoom_and_step_through_findings() {
    let mut browser = Browser::start();
    browser.open(&page(golden("rxe/loss_send_middle.pcap").to_str().unwrap()), "");
    let whole = browser.evaluate(PLACE);
    let length = |place: &Value| place["to"].as_f64().unwrap() - place["from"].as_f64().unwrap();
    browser.press("+");
    let closer = browser.evaluate(PLACE);
    assert!(length(&closer) < length(&whole));
    browser.press("ArrowRight");
    let later = browser.evaluate(PLACE);
    assert!(later["from"].as_f64() > closer["from"].as_f64());
    browser.press("ArrowLeft");
    browser.press("-");
    browser.press("0");
    assert_eq!(browser.evaluate(PLACE), whole);
    // Ten NAKs and five timeouts.
    let mut marks = Vec::new();
    for _ in 0..15 {
        browser.press("j");
        marks.push(browser.evaluate(PLACE)["mark"].as_f64().unwrap());
    }
    assert!(marks.is_sorted() && marks[0] < marks[14], "{marks:?}");
    let told = "document.getElementById('told').textContent";
    assert!(browser.evaluate(told).as_str().unwrap().contains("NAK of PSN"), "{marks:?}");
    browser.press("j");
    assert_eq!(browser.evaluate(told), "no further finding");
    browser.press("k");
    assert_eq!(browser.evaluate(PLACE)["mark"].as_f64().unwrap(), marks[13]);
    browser.press("?");
    assert_eq!(browser.evaluate("document.getElementById('help').open"), true);
    // Keys of the page are those of the help while it is open.
    browser.press("j");
    assert_eq!(browser.evaluate(PLACE)["mark"].as_f64().unwrap(), marks[13]);
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
#[ignore = "needs Debian's chromium: tools/ci.sh pages"]
fn many_connections_have_a_heat_map_and_few_have_none() {
    let mut browser = Browser::start();
    let hidden = "document.getElementById('overview').hidden";
    browser.open(&page_of("browser-few.pcapng", 4_000, 8), "");
    assert_eq!(browser.evaluate(hidden), true);
    browser.open(&page_of("browser-many.pcapng", 200_000, 40), "");
    assert_eq!(browser.evaluate(hidden), false);
    // A click shows the connection of the row at that moment.
    let click = "(() => {
        const box = heat.canvas.getBoundingClientRect();
        const at = { clientX: box.left + box.width / 2, clientY: box.top + 10.5 * heat.rowHeight, bubbles: true };
        heat.canvas.dispatchEvent(new MouseEvent('click', at));
        return captured() / 2;
    })()";
    let half = browser.evaluate(click).as_f64().unwrap();
    let place = browser.evaluate(PLACE);
    assert_eq!(place["flow"], 10);
    assert!((place["mark"].as_f64().unwrap() / half - 1.0).abs() < 0.01, "{place} and {half}");
    // Traffic, retransmissions and waits for a timer are in the map.
    let cells = "[...new Set(overview.rows.flatMap((row) => [...row]))]";
    let cells = browser.evaluate(cells);
    let has = |kind: fn(u64) -> bool| {
        cells.as_array().unwrap().iter().filter_map(Value::as_u64).any(kind)
    };
    assert!(has(|cell| cell & 15 == 15) && has(|cell| (1..=7).contains(&(cell >> 4))), "{cells}");
    assert!(has(|cell| cell >> 4 > 7), "{cells}");
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
#[ignore = "needs Debian's chromium: tools/ci.sh pages"]
fn paper_is_white_and_has_every_table_open() {
    let mut browser = Browser::start();
    let dark = json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] });
    browser.call("Emulation.setEmulatedMedia", &dark);
    browser.open(&page(golden("rxe/loss_send_middle.pcap").to_str().unwrap()), "");
    let is_dark = "document.documentElement.classList.contains('dark')";
    assert_eq!(browser.evaluate(is_dark), true);
    // This listener comes after that of the page.
    browser.evaluate(
        "void addEventListener('beforeprint', () => { window.paper = {
            dark: document.documentElement.classList.contains('dark'),
            closed: document.querySelectorAll('details:not([open])').length,
            rows: document.querySelectorAll('#findings tr').length,
        }; })",
    );
    let pdf = browser.call("Page.printToPDF", &json!({ "printBackground": false }));
    assert!(pdf["data"].as_str().unwrap().len() > 20_000);
    let paper = json!({ "dark": false, "closed": 0, "rows": 16 });
    assert_eq!(browser.evaluate("window.paper"), paper);
    // Afterwards it is as before.
    assert_eq!(browser.evaluate(is_dark), true);
    assert_eq!(browser.evaluate("document.querySelectorAll('details[open]').length"), 0);
    let print = json!({ "media": "print" });
    browser.call("Emulation.setEmulatedMedia", &print);
    let widths = "[...document.querySelectorAll('#charts canvas')].every((of) => of.clientWidth === of.parentElement.clientWidth)";
    assert_eq!(browser.evaluate(widths), true);
    assert_eq!(browser.complaints, [""; 0]);
}

#[test]
#[ignore = "needs Debian's chromium: tools/ci.sh pages"]
fn tables_and_charts_have_names_for_a_screen_reader() {
    let mut browser = Browser::start();
    browser.open(&page(golden("rxe/rc_srq.pcap").to_str().unwrap()), "");
    let tree = browser.call("Accessibility.getFullAXTree", &json!({}));
    let nodes = tree["nodes"].as_array().unwrap();
    let names = |role: &str| {
        let of_role = nodes.iter().filter(|node| node["role"]["value"] == role);
        of_role.map(|node| node["name"]["value"].as_str().unwrap_or_default()).collect::<Vec<_>>()
    };
    assert!(names("table").contains(&"latency, µs"), "{:?}", names("table"));
    assert!(names("columnheader").contains(&"goodput"), "{:?}", names("columnheader"));
    let charts = names("image");
    assert!(
        charts.iter().any(|name| name.starts_with("PSN, packets since the first over time")),
        "{charts:?}"
    );
    assert_eq!(names("link").len(), 2);
    assert!(names("navigation").contains(&"flows"));
}
