//! What clients have done and seen, and the checker that says whether that can be.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// A history; times are nanoseconds since it began.
pub(crate) struct History {
    began: Instant,
    clients: AtomicU32,
    lines: Mutex<Vec<String>>,
}

/// An operation that has begun.
pub(crate) struct Call {
    client: u32,
    key: u32,
    at: u128,
}

impl History {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            clients: AtomicU32::new(0),
            lines: Mutex::default(),
        }
    }

    /// A number for a client that does one operation after the other. After one whose end it does not know,
    /// it is another.
    pub(crate) fn client(&self) -> u32 {
        self.clients.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn call(&self, client: u32, key: u32) -> Call {
        let at = self.now();
        Call { client, key, at }
    }

    pub(crate) fn read(&self, call: Call, value: &str) {
        self.read_until(call, self.now(), value);
    }

    /// A read that had its answer at that time.
    pub(crate) fn read_until(&self, call: Call, end: u128, value: &str) {
        self.note(&call, false, value, end);
    }

    pub(crate) fn now(&self) -> u128 {
        self.began.elapsed().as_nanos()
    }

    pub(crate) fn written(&self, call: Call, value: &str) {
        self.note(&call, true, value, self.now());
    }

    /// A write that may be done at any time, or never.
    pub(crate) fn perhaps_written(&self, call: Call, value: &str) {
        self.note(&call, true, value, 0);
    }

    fn note(&self, call: &Call, write: bool, value: &str, end: u128) {
        let Call { client, key, at } = call;
        let line = format!(
            r#"{{"client":{client},"key":{key},"write":{write},"value":"{value}","call":{at},"return":{end}}}"#
        );
        self.lines.lock().unwrap().push(line);
    }

    /// What the checker says, and whether the history is linearizable.
    ///
    /// # Panics
    /// The checker cannot be run, or cannot say it.
    pub(crate) fn check(&self) -> (bool, String) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cache/checker");
        let mut checker = Command::new("go")
            .args(["run", "."])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the checker of histories needs Go: apt-get install golang");
        let text = self.lines.lock().unwrap().join("\n");
        let mut input = checker.stdin.take().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        drop(input);
        let output = checker.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let linearizable = said.starts_with("linearizable:");
        assert!(
            linearizable || said.starts_with("violation:"),
            "the checker could not tell: {said}"
        );
        if linearizable {
            return (true, said);
        }
        let file = std::env::temp_dir().join(format!("forebay-history-{}.jsonl", std::process::id()));
        std::fs::write(&file, text).unwrap();
        (false, format!("{said}; the history is in {}", file.display()))
    }
}
