//! What stands behind the address on `bind` and `server` lines.

use super::keywords::{OF_BINDS, OF_SERVERS, Parameter};
use super::lines::{Line, shown};
use super::remarks::{Equal, Remarks};

/// A value, and the line it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taken<T> {
    pub(super) value: T,
    pub(super) line: usize,
}

impl<T> Taken<T> {
    pub(super) fn of(line: &Line, value: T) -> Self {
        let line = line.number;
        Self { value, line }
    }
}

/// Words of a line, one after the other.
struct Words<'l> {
    line: &'l Line,
    next: usize,
}

impl<'l> Words<'l> {
    fn next(&mut self) -> Option<&'l str> {
        let word = self.line.words.get(self.next)?;
        self.next += 1;
        Some(word)
    }

    fn taken(&mut self) -> Option<Taken<String>> {
        let value = self.next()?.to_owned();
        Some(Taken::of(self.line, value))
    }

    fn number(&mut self, word: &str, remarks: &mut Remarks) -> Option<Taken<u64>> {
        let text = self.next().unwrap_or_default();
        let shown = format!("`{word} {text}`");
        read(
            text.parse().ok(),
            self.line.number,
            &shown,
            "whole number",
            remarks,
        )
    }

    fn time(&mut self, word: &str, remarks: &mut Remarks) -> Option<Taken<u64>> {
        let text = self.next().unwrap_or_default();
        let shown = format!("`{word} {text}`");
        read(milliseconds(text), self.line.number, &shown, "time", remarks)
    }

    /// A word that is not taken over, with those that belong to it.
    fn other(&mut self, word: &str, known: &[Parameter], remarks: &mut Remarks) {
        let number = self.line.number;
        let Some((_, count, equal)) = known.iter().find(|(name, _, _)| *name == word) else {
            return remarks.lacks(number, format!("`{word}`: not known; left out"));
        };
        let end = (self.next + count).min(self.line.words.len());
        let words = &self.line.words[self.next - 1..end];
        remarks.of_words(number, &shown(words), *equal);
        self.next = end;
    }
}

/// The value that was read of the words `shown`, or a word that they are no such thing.
pub(super) fn read(
    value: Option<u64>,
    line: usize,
    shown: &str,
    kind: &str,
    remarks: &mut Remarks,
) -> Option<Taken<u64>> {
    if value.is_none() {
        remarks.lacks(line, format!("{shown}: no {kind}; left out"));
    }
    Some(Taken { value: value?, line })
}

/// A time in milliseconds, which is also what a figure without a unit means.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let scale = match unit {
        "us" => return Some(number / 1000),
        "" | "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(scale)
}

/// TLS of either side.
#[derive(Clone, Debug, Default)]
pub(super) struct Tls {
    pub(super) line: Option<usize>,
    pub(super) cert: Option<Taken<String>>,
    pub(super) ca: Option<Taken<String>>,
    pub(super) verify: Option<Taken<String>>,
    pub(super) checks_name: bool,
    pub(super) min_is_13: Option<usize>,
}

/// A `bind` line.
#[derive(Clone, Debug, Default)]
pub(super) struct Bind {
    pub(super) address: String,
    pub(super) line: usize,
    pub(super) accept_proxy: Option<usize>,
    pub(super) maxconn: Option<Taken<u64>>,
    pub(super) backlog: Option<Taken<u64>>,
    pub(super) mode: Option<Taken<String>>,
    pub(super) congestion: Option<Taken<String>>,
    pub(super) tls: Tls,
}

impl Bind {
    /// Its parameters begin at the word `from`.
    pub(super) fn new(address: &str, line: &Line, from: usize, remarks: &mut Remarks) -> Self {
        let mut bind = Self {
            address: address.to_owned(),
            line: line.number,
            ..Self::default()
        };
        let mut words = Words { line, next: from };
        while let Some(word) = words.next() {
            match word {
                "accept-proxy" => bind.accept_proxy = Some(line.number),
                "maxconn" => bind.maxconn = words.number(word, remarks),
                "backlog" => bind.backlog = words.number(word, remarks),
                "mode" => bind.mode = words.taken(),
                "cc" => bind.congestion = words.taken(),
                "ssl" => bind.tls.line = Some(line.number),
                "crt" => bind.tls.certificate(words.taken(), remarks),
                "crt-list" => {
                    words.next();
                    let why = "`crt-list`: a listener has one certificate: name its file in [listener.tls]";
                    remarks.lacks(line.number, why);
                }
                "ca-file" => bind.tls.ca = words.taken(),
                "verify" => bind.tls.verify = words.taken(),
                "ssl-min-ver" => {
                    let version = words.next().unwrap_or_default();
                    bind.tls.min_is_13 = (version == "TLSv1.3").then_some(line.number);
                }
                "no-tlsv12" | "force-tlsv13" => bind.tls.min_is_13 = Some(line.number),
                _ => words.other(word, OF_BINDS, remarks),
            }
        }
        bind
    }
}

impl Tls {
    fn certificate(&mut self, file: Option<Taken<String>>, remarks: &mut Remarks) {
        let Some(file) = file else { return };
        if let Some(first) = &self.cert {
            let why = format!(
                "`crt {}`: a listener has one certificate, that of line {}",
                file.value, first.line
            );
            return remarks.lacks(file.line, why);
        }
        self.cert = Some(file);
    }
}

/// What a `server` line says, and `default-server` lines for those that follow.
#[derive(Clone, Debug, Default)]
pub(super) struct Parameters {
    pub(super) id: Option<Taken<u64>>,
    pub(super) weight: Option<Taken<u64>>,
    pub(super) maxconn: Option<Taken<u64>>,
    pub(super) maxqueue: Option<Taken<u64>>,
    pub(super) is_backup: Option<usize>,
    pub(super) disabled: Option<usize>,
    pub(super) check: Option<usize>,
    pub(super) inter: Option<Taken<u64>>,
    pub(super) rise: Option<Taken<u64>>,
    pub(super) fall: Option<Taken<u64>>,
    pub(super) slowstart: Option<Taken<u64>>,
    pub(super) send_proxy: Option<usize>,
    pub(super) closes: Option<usize>,
    pub(super) congestion: Option<Taken<String>>,
    pub(super) tls: Tls,
}

impl Parameters {
    /// Takes what the line says from the word `from` on.
    pub(super) fn read(&mut self, line: &Line, from: usize, remarks: &mut Remarks) {
        let number = line.number;
        let mut words = Words { line, next: from };
        while let Some(word) = words.next() {
            match word {
                "id" => self.id = words.number(word, remarks),
                "weight" => self.weight = words.number(word, remarks),
                "maxconn" => self.maxconn = words.number(word, remarks),
                "maxqueue" => self.maxqueue = words.number(word, remarks),
                "backup" => self.is_backup = Some(number),
                "no-backup" => self.is_backup = None,
                "disabled" => self.disabled = Some(number),
                "enabled" => self.disabled = None,
                "check" => self.check = Some(number),
                "no-check" => self.check = None,
                "inter" => self.inter = words.time(word, remarks),
                "rise" => self.rise = words.number(word, remarks),
                "fall" => self.fall = words.number(word, remarks),
                "slowstart" => self.slowstart = words.time(word, remarks),
                "send-proxy" => {
                    self.send_proxy = Some(number);
                    remarks.lacks(
                        number,
                        "`send-proxy`: version 2 of the header is sent, as with `send-proxy-v2`",
                    );
                }
                "send-proxy-v2" => self.send_proxy = Some(number),
                "send-proxy-v2-ssl" | "send-proxy-v2-ssl-cn" => {
                    self.send_proxy = Some(number);
                    remarks.lacks(
                        number,
                        format!("`{word}`: the header has the addresses, and nothing about TLS"),
                    );
                }
                "no-send-proxy" | "no-send-proxy-v2" => self.send_proxy = None,
                "on-marked-down" => {
                    self.closes = Some(number).filter(|_| words.next() == Some("shutdown-sessions"))
                }
                "cc" => self.congestion = words.taken(),
                "no-ssl" | "no-check-ssl" => self.tls.line = self.tls.line.filter(|_| word != "no-ssl"),
                _ => self.tls.of_server(word, &mut words, remarks),
            }
        }
    }
}

impl Tls {
    fn of_server(&mut self, word: &str, words: &mut Words<'_>, remarks: &mut Remarks) {
        match word {
            "ssl" => self.line = Some(words.line.number),
            "crt" => self.cert = words.taken(),
            "ca-file" => self.ca = words.taken(),
            "verify" => self.verify = words.taken(),
            "verifyhost" => {
                self.checks_name = true;
                let name = words.next().unwrap_or_default();
                let why = format!(
                    "`verifyhost {name}`: the name in the certificate must be that of the server's `address`"
                );
                remarks.lacks(words.line.number, why);
            }
            "sni" => {
                words.next();
                self.checks_name = true;
            }
            _ => words.other(word, OF_SERVERS, remarks),
        }
    }
}

/// One word of a table, for lines where such a word is all there is.
pub(super) fn say(line: &Line, equal: Option<Equal>, remarks: &mut Remarks) {
    match equal {
        Some(equal) => remarks.of_table(line, equal),
        None => remarks.lacks(line.number, format!("{}: not known; left out", line.shown())),
    }
}
