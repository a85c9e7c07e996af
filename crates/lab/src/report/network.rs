//! Two network namespaces with a bridge between them, as pods of Kubernetes are: a client's and a gateway's.
//! Nothing of it is seen on this machine's own network.

use std::{net::Ipv4Addr, process::Command};

use anyhow::{Context, ensure};

use crate::child;

/// Where the gateway is, in its namespace.
pub(super) const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 98, 0, 2);
const MACHINES: [(&str, Ipv4Addr); 2] = [("client", Ipv4Addr::new(10, 98, 0, 1)), ("gateway", GATEWAY)];
const BRIDGE: &str = "bridge";

/// It is there until it is dropped, or the process ends.
pub(super) struct Network;

impl Network {
    /// An error where this process may not make namespaces.
    pub(super) fn new() -> anyhow::Result<Self> {
        child::at_exit(|| {
            let machines = MACHINES.iter().map(|(machine, _)| *machine);
            for machine in machines.chain([BRIDGE]) {
                // That ends its interfaces as well. Where making them broke off there are fewer.
                let _ = ip(&format!("netns del {}", namespace(machine)));
            }
        });
        let network = Self;
        let bridge = namespace(BRIDGE);
        ip(&format!("netns add {bridge}"))?;
        ip(&format!("-n {bridge} link add br0 type bridge"))?;
        ip(&format!("-n {bridge} link set br0 up"))?;
        for (machine, address) in MACHINES {
            let own = namespace(machine);
            ip(&format!("netns add {own}"))?;
            ip(&format!("-n {own} link set lo up"))?;
            ip(&format!(
                "-n {bridge} link add {machine} type veth peer name eth0 netns {own}"
            ))?;
            ip(&format!("-n {bridge} link set {machine} master br0 up"))?;
            ip(&format!("-n {own} addr add {address}/24 dev eth0"))?;
            ip(&format!("-n {own} link set eth0 up"))?;
        }
        Ok(network)
    }

    /// The words before a command that is to run on a machine.
    pub(super) fn on(machine: &str) -> Vec<String> {
        let words = ["ip", "netns", "exec", &namespace(machine)];
        words.map(str::to_owned).to_vec()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        child::run_at_exit();
    }
}

fn namespace(machine: &str) -> String {
    format!("forebay{}-{machine}", std::process::id())
}

fn ip(words: &str) -> anyhow::Result<()> {
    let mut command = Command::new("ip");
    command.args(words.split(' '));
    let output = command.output().context("ip (apt-get install iproute2)")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {words}: {}", said.trim());
    Ok(())
}
