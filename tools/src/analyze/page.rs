//! An analysis as a page for a browser: one file that needs no other and no network.
//!
//! | file | |
//! |---|---|
//! | `page.html`, `style.css` | the parts of the page |
//! | `format.js` | figures with their units, and the making of elements |
//! | `decode.js` | unpacks series of numbers, and makes coarser ones of them |
//! | `plot.js` | draws charts of one stream |
//! | `overview.js` | draws the heat map of all flows |
//! | `findings.js` | lists NAKs and waits of a stream |
//! | `page.js` | words and tables, address, keys, print |

mod overview;
mod packed;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;
use serde_json::{Map, Value, json};
use softroce_pcap::analyze::{Analysis, Line, Stream};

use super::json;
use crate::capture;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
/// The scripts use each other's functions; the last one begins.
const SCRIPTS: [&str; 6] = [
    include_str!("page/format.js"),
    include_str!("page/decode.js"),
    include_str!("page/plot.js"),
    include_str!("page/overview.js"),
    include_str!("page/findings.js"),
    include_str!("page/page.js"),
];

/// Data of the page.
#[derive(Serialize)]
struct Data<T> {
    #[serde(flatten)]
    analysis: T,
    overview: Value,
}

/// Writes the page of a capture, or of the captures of both ends, which are the inputs.
pub(super) fn write(
    path: &Path,
    inputs: &[PathBuf],
    name: &str,
    analysis: &Analysis,
) -> anyhow::Result<()> {
    let data = Data {
        analysis: json::whole(name, analysis, |stream| Some(series(stream))),
        overview: overview::of(analysis),
    };
    let page = page(&embedded(&data)?);
    let name_of_output = || path.display().to_string();
    let mut out = capture::create(path, inputs)?;
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

/// Returns the series of a stream, packed.
fn series(stream: &Stream) -> Value {
    let traces = Line::ALL.map(|line| (line.name(), stream.trace(line)));
    let kept = traces.into_iter().filter(|(_, trace)| !trace.cells().is_empty());
    let traces: Map<_, _> =
        kept.map(|(name, trace)| (name.to_owned(), packed::trace(trace))).collect();
    json!({
        "traces": traces,
        "carried": packed::bins(&stream.over_time.carried),
        "delivered": packed::bins(stream.arrived_over_time()),
    })
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
}
