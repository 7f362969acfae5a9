//! A headless Chromium, driven as a person would: pointer, keys, dialogs.
//!
//! It speaks the DevTools protocol, JSON over a WebSocket on loopback. What is needed of that is five commands, so they are
//! written out here.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket};

use crate::child::{Child, PATIENCE, Stream};

/// What Chromium says when it can be connected to.
const READY: &str = "DevTools listening on ";

/// A browser with one page. Dropping it ends it and removes its profile.
#[derive(Debug)]
pub struct Browser {
    socket: WebSocket<TcpStream>,
    session: String,
    last_id: u64,
    /// What is typed into the next dialog.
    answer: Option<String>,
    /// What the page has complained about.
    complaints: Vec<String>,
    /// What the page has asked the network or the disk for.
    requests: Vec<String>,
    // Killed before the directory that it writes to is removed.
    _child: Child,
    _directory: TempDir,
}

impl Browser {
    /// Starts Chromium with an empty page of this size, in pixels.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(width: u32, height: u32) -> Result<Self> {
        let directory = TempDir::new()?;
        let mut command = Command::new("chromium");
        command
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions"])
            .args(["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"])
            .args(["--remote-debugging-address=127.0.0.1", "--remote-debugging-port=0"])
            .arg(format!("--user-data-dir={}", directory.path().display()))
            .arg(format!("--window-size={width},{height}"))
            .env("HOME", directory.path())
            .arg("about:blank");
        let mut child = Child::spawn("chromium", &mut command)?;
        let line = child.line_with_prefix(Stream::Stderr, READY)?;
        let url = line.trim_start_matches(READY).trim();
        let host = url.strip_prefix("ws://").and_then(|rest| rest.split('/').next()).context(line.clone())?;
        let stream = TcpStream::connect(host)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (socket, _) =
            tungstenite::client(url, stream).map_err(|error| child.failure(&format!("refuses: {error}")))?;
        let mut browser = Self {
            socket,
            session: String::new(),
            last_id: 0,
            answer: None,
            complaints: Vec::new(),
            requests: Vec::new(),
            _child: child,
            _directory: directory,
        };
        browser.open_page(width, height)?;
        Ok(browser)
    }

    fn open_page(&mut self, width: u32, height: u32) -> Result<()> {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.call("Target.attachToTarget", attach)?;
        self.session = session["sessionId"].as_str().context("no session")?.to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}))?;
        }
        self.resize(width, height)
    }

    /// Gives the page another size, in pixels.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn resize(&mut self, width: u32, height: u32) -> Result<()> {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", metrics)?;
        Ok(())
    }

    /// Opens a file and waits until it is loaded and its scripts have run.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub fn open(&mut self, file: &Path) -> Result<()> {
        let opened = self.call("Page.navigate", json!({ "url": format!("file://{}", file.display()) }))?;
        ensure!(opened["errorText"].is_null(), "{}: {opened}", file.display());
        // Each turn gives what a script has put off its turn too.
        self.evaluate(
            "new Promise(done => { const next = () => document.readyState === 'complete' \
             ? setTimeout(() => requestAnimationFrame(() => done(true)), 0) : setTimeout(next, 0); next(); })",
        )?;
        Ok(())
    }

    /// The value of a JavaScript expression, or that of the promise that it is.
    ///
    /// # Errors
    /// When it throws.
    pub fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let request = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", request)?;
        ensure!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        Ok(answer["result"]["value"].clone())
    }

    /// Moves the pointer.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn point_at(&mut self, (x, y): (f64, f64)) -> Result<()> {
        self.mouse("mouseMoved", (x, y), "none")
    }

    /// Moves the pointer and clicks.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn click(&mut self, at: (f64, f64)) -> Result<()> {
        self.point_at(at)?;
        self.mouse("mousePressed", at, "left")?;
        self.mouse("mouseReleased", at, "left")
    }

    fn mouse(&mut self, kind: &str, (x, y): (f64, f64), button: &str) -> Result<()> {
        let event = json!({ "type": kind, "x": x, "y": y, "button": button, "clickCount": 1 });
        self.call("Input.dispatchMouseEvent", event)?;
        Ok(())
    }

    /// Presses Ctrl-F.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub fn press_ctrl_f(&mut self) -> Result<()> {
        for kind in ["rawKeyDown", "keyUp"] {
            let key = json!({ "type": kind, "modifiers": 2, "windowsVirtualKeyCode": 70, "code": "KeyF", "key": "f" });
            self.call("Input.dispatchKeyEvent", key)?;
        }
        Ok(())
    }

    /// What is typed into the next dialog.
    pub fn answer_with(&mut self, text: &str) {
        self.answer = Some(text.to_owned());
    }

    /// A picture of what is in view, as PNG.
    ///
    /// # Errors
    /// When it cannot be taken or written.
    pub fn screenshot(&mut self, to: &Path) -> Result<()> {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }))?;
        let data = STANDARD.decode(picture["data"].as_str().context("no picture")?)?;
        std::fs::write(to, data).with_context(|| to.display().to_string())
    }

    /// Uncaught exceptions and everything on the console.
    #[must_use]
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// The addresses that were asked for.
    #[must_use]
    pub fn requests(&self) -> &[String] {
        &self.requests
    }

    /// Sends a command and reads up to its answer.
    fn call(&mut self, method: &str, parameters: Value) -> Result<Value> {
        let id = self.send(method, parameters)?;
        loop {
            let message = self.read().with_context(|| format!("waiting for the answer to {method}"))?;
            if message["id"] == id {
                ensure!(message["error"].is_null(), "{method}: {}", message["error"]);
                return Ok(message["result"].clone());
            }
            self.note(&message)?;
        }
    }

    fn send(&mut self, method: &str, parameters: Value) -> Result<u64> {
        self.last_id += 1;
        let mut request = json!({ "id": self.last_id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            request["sessionId"] = json!(self.session);
        }
        self.socket.send(Message::text(request.to_string()))?;
        Ok(self.last_id)
    }

    fn read(&mut self) -> Result<Value> {
        loop {
            match self.socket.read()? {
                Message::Text(text) => return Ok(serde_json::from_str(&text)?),
                Message::Close(_) => bail!("the browser has closed the connection"),
                _ => {}
            }
        }
    }

    /// Remembers or answers what the browser says on its own.
    fn note(&mut self, message: &Value) -> Result<()> {
        let said = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Page.javascriptDialogOpening" => {
                let answer = self.answer.take();
                let reply = json!({ "accept": answer.is_some(), "promptText": answer.unwrap_or_default() });
                // The answer to this one is passed over: the command that opened the dialog is still waiting for its own.
                self.send("Page.handleJavaScriptDialog", reply)?;
            }
            "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded" => {
                self.complaints.push(said.to_string());
            }
            "Network.requestWillBeSent" => {
                self.requests.push(said["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            _ => {}
        }
        Ok(())
    }
}
