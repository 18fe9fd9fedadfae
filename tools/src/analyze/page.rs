//! An analysis as a page for a browser: one file that needs no other and no network.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Map, Value, json};
use softroce_pcap::analyze::{Analysis, Line, Stream, Trace};

use super::json;
use crate::capture;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
/// The two scripts use each other's functions.
const SCRIPTS: [&str; 2] = [include_str!("page/plot.js"), include_str!("page/page.js")];

/// Writes the page of a capture.
pub(super) fn write(path: &Path, input: &Path, analysis: &Analysis) -> anyhow::Result<()> {
    let name = input.display().to_string();
    let data = json::whole(&name, analysis, |stream| Some(traces(stream)));
    let page = page(&embedded(&data)?);
    let name_of_output = || path.display().to_string();
    let mut out = capture::create(path, &[input.to_owned()])?;
    out.write_all(page.as_bytes()).and_then(|()| out.flush()).with_context(name_of_output)
}

/// Fills in the parts of the page. Inserted text is not searched for further places.
fn page(data: &str) -> String {
    let scripts = SCRIPTS.concat();
    let mut page = String::new();
    for (at, part) in PAGE.split('{').enumerate() {
        let Some((name, rest)) = part.split_once('}').filter(|_| at > 0) else {
            page.push_str(part);
            continue;
        };
        page.push_str(match name {
            "style" => STYLE,
            "script" => &scripts,
            _ => data,
        });
        page.push_str(rest);
    }
    page
}

/// Returns JSON for a script element: nothing in it can end the element or begin a comment.
fn embedded(value: &impl Serialize) -> serde_json::Result<String> {
    let text = serde_json::to_string(value)?;
    Ok(text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"))
}

fn traces(stream: &Stream) -> Value {
    let traces = Line::ALL.map(|line| (line.name(), stream.trace(line)));
    let kept = traces.into_iter().filter(|(_, trace)| !trace.cells().is_empty());
    kept.map(|(name, trace)| (name.to_owned(), packed(trace))).collect::<Map<_, _>>().into()
}

/// Returns the points of a trace as a flat list of four numbers each: time and lowest value, both relative to the
/// point before; the height of the range; the number of points that it stands for.
fn packed(trace: &Trace) -> Value {
    let mut points = Vec::with_capacity(trace.cells().len() * 4);
    let (mut at, mut low) = (0, 0);
    for cell in trace.cells() {
        points.push(Value::from(cell.at - at));
        points.push(signed(cell.low, low));
        points.push(Value::from(cell.high - cell.low));
        points.push(Value::from(cell.points));
        (at, low) = (cell.at, cell.low);
    }
    json!({ "bin_ns": trace.bin(), "points": points })
}

fn signed(value: u64, before: u64) -> Value {
    if value >= before {
        Value::from(value - before)
    } else {
        i64::try_from(before - value).map_or(Value::Null, |less| Value::from(-less))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_end_its_element() {
        let hostile =
            json!({ "file": "</script><script>alert(1)</script><!-- & {style} {script}" });
        let text = embedded(&hostile).unwrap();
        assert!(!text.contains(['<', '>', '&']), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), hostile);
        let page = page(&text);
        // Text that looks like a place to fill in is left as it is, and each part occurs once.
        assert!(page.contains(&text));
        assert_eq!(page.matches(STYLE).count(), 1);
        assert_eq!(page.matches("</script>").count(), 2);
        assert_eq!(page.matches("<script").count(), 2);
    }

    #[test]
    fn scripts_and_style_end_no_element_of_the_page() {
        for part in SCRIPTS {
            assert!(!part.contains("</") && !part.contains("<!--"));
        }
        assert!(!STYLE.contains('<'));
    }

    #[test]
    fn differences_may_be_negative() {
        assert_eq!(signed(5, 7), json!(-2));
        assert_eq!(signed(7, 5), json!(2));
        assert_eq!(signed(u64::MAX, 0), json!(u64::MAX));
    }
}
