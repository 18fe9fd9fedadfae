//! A browser without a window, controlled by the DevTools protocol through a pipe.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// Longest time that one answer may take.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Width and height of the page in pixels.
const SIZE: (u32, u32) = (1400, 1000);

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    sent: u64,
    /// Errors of scripts, and requests other than for the page itself.
    pub(crate) complaints: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts the browser with an empty page.
    #[expect(
        clippy::disallowed_methods,
        reason = "a test has no runtime; the thread ends with the browser"
    )]
    pub(crate) fn start() -> Self {
        let profile = TempDir::new().unwrap();
        // The browser reads descriptor 3 and writes 4.
        let script = "exec 3<&0 4>&1 </dev/null >/dev/null 2>&1; exec \"$@\"";
        let mut child = Command::new("sh")
            .args(["-c", script, "sh", "chromium", "--headless=new", "--no-sandbox"])
            .args(["--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--disable-extensions", "--disable-background-networking"])
            .arg(format!("--window-size={},{}", SIZE.0, SIZE.1))
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                // The test may have ended.
                if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        let (session, complaints) = (None, Vec::new());
        let mut browser =
            Self { child, input, messages, session, sent: 0, complaints, _profile: profile };
        let page = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attach);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        let (width, height) = SIZE;
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        browser.call("Emulation.setDeviceMetricsOverride", &metrics);
        // Before the page's own scripts: the duration of each task of 50 ms or more.
        let observer = "window.tasks = []; new PerformanceObserver((list) => tasks.push(...list.getEntries().map((of) => of.duration))).observe({ type: 'longtask' });";
        let source = json!({ "source": observer });
        browser.call("Page.addScriptToEvaluateOnNewDocument", &source);
        browser
    }

    /// Calls a method; returns its result.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.input.write_all(message.to_string().as_bytes()).unwrap();
        self.input.write_all(&[0]).unwrap();
        loop {
            let message = self.message();
            if message["id"] == self.sent {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
        }
    }

    /// Returns the next message, and keeps complaints.
    fn message(&mut self) -> Value {
        let message = self.messages.recv_timeout(MAX_WAIT).expect("no answer of the browser");
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => self.complaints.push(message["params"].to_string()),
            Some("Network.requestWillBeSent") => {
                let url = message["params"]["request"]["url"].as_str().unwrap();
                if !url.starts_with("file:") && !url.starts_with("about:") {
                    self.complaints.push(url.to_owned());
                }
            }
            _ => {}
        }
        message
    }

    /// Opens a page at a fragment (`#…` or nothing), and waits until it has loaded.
    pub(crate) fn open(&mut self, page: &Path, fragment: &str) {
        // The same file at another fragment would not be loaded again.
        self.navigate("about:blank");
        self.navigate(&format!("file://{}{fragment}", page.display()));
    }

    fn navigate(&mut self, url: &str) {
        let answer = self.call("Page.navigate", &json!({ "url": url }));
        assert!(answer["errorText"].is_null(), "{url}: {answer}");
        self.evaluate("new Promise((done) => document.readyState === 'complete' ? done() : addEventListener('load', () => done()))");
    }

    /// Returns the value of an expression, or that of its promise.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", &params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Presses a key of a name, such as `j` or `ArrowLeft`, and waits for the next frame.
    pub(crate) fn press(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let params = json!({ "type": kind, "key": key, "text": text });
            self.call("Input.dispatchKeyEvent", &params);
        }
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
