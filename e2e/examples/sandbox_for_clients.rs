//! The real server that the clients of other languages are tested against: what `e2e/clients/run` starts.
//!
//! `sandbox_for_clients mariadb|mysql|mariadb-11 [--SERVER-OPTION...]` prints `name=value` lines (`port`,
//! `gateway_port`, `redis_port`, `redis_tls_port`, `socket`, `ca`, `cert`, `key`, `wrong_ca`, `folder`,
//! `version`, then `ready`), and keeps the server until its standard input ends. `gateway_port` and the two
//! of Redis are free for a gateway. The certificate is the server's, good for `localhost`; a gateway in front
//! may use it, too. `wrong_ca` is a CA that signed nothing here.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};

use anyhow::{Context, Result, bail};
use sandbox::{Certificates, Kind, Sandbox, Spec};

/// Ports that a gateway may listen on.
const OF_GATEWAY: [&str; 3] = ["gateway_port", "redis_port", "redis_tls_port"];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let spec = match arguments.next().as_deref() {
        Some("mariadb") => Spec::new(Kind::Mariadb),
        Some("mariadb-11") => Spec::new(Kind::Mariadb).program(sandbox::mariadb_11()?),
        Some("mysql") => Spec::new(Kind::Mysql),
        other => bail!("expected mariadb, mariadb-11 or mysql, found {other:?}"),
    };
    let sandbox = Sandbox::start(arguments.fold(spec, Spec::option))?;

    let folder = sandbox.folder().join("wrong");
    fs::create_dir(&folder).context("make the folder of the other CA")?;
    let wrong = Certificates::make(&folder)?;
    let (node, certificates) = (sandbox.primary(), sandbox.certificates());
    let mut out = io::stdout().lock();
    writeln!(out, "port={}", node.port())?;
    let mut ports = BTreeSet::new();
    while ports.len() < OF_GATEWAY.len() {
        ports.insert(sandbox::free_port()?);
    }
    for (name, port) in OF_GATEWAY.iter().zip(ports) {
        writeln!(out, "{name}={port}")?;
    }
    writeln!(out, "socket={}", node.socket().display())?;
    writeln!(out, "ca={}", certificates.ca.display())?;
    writeln!(out, "cert={}", certificates.server_cert.display())?;
    writeln!(out, "key={}", certificates.server_key.display())?;
    writeln!(out, "wrong_ca={}", wrong.ca.display())?;
    writeln!(out, "folder={}", sandbox.folder().display())?;
    writeln!(out, "version={}", sandbox.version())?;
    writeln!(out, "ready")?;
    out.flush()?;

    io::stdin()
        .read_to_end(&mut Vec::new())
        .context("wait for the end of standard input")?;
    Ok(())
}
