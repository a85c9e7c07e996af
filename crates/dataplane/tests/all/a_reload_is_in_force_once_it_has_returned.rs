//! The acceptor has a thread of its own, and whoever asks for a reload does not wait for it anywhere else.

use std::io::ErrorKind;
use std::net::TcpStream;

use crate::gateway::RunningGateway;

/// A listener of mode `tcp`, before a server that is not there.
fn listener(bind: &str) -> String {
    format!("[[listener]]\nbind = \"{bind}\"\ncluster = \"main\"\nmode = \"tcp\"\n")
}

#[test]
fn a_listener_that_a_reload_has_taken_away_takes_no_connection() {
    let cluster = "[cluster.main]\nservers = [\"127.0.0.1:1\"]\n";
    let one = format!("workers = 1\n{}{cluster}", listener("127.0.0.1:0"));
    let two = format!(
        "workers = 1\n{}{}{cluster}",
        listener("127.0.0.1:0"),
        listener("127.0.0.2:0")
    );
    let gateway = RunningGateway::start(&one, None);
    // A single refusal could be chance.
    for _ in 0..20 {
        gateway.reload(&two);
        let address = gateway.addresses()[1];
        gateway.reload(&one);
        let refused = TcpStream::connect(address).map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(ErrorKind::ConnectionRefused));
    }
}
