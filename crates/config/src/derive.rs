//! Defaults that depend on other options: names, and what an option that is given says about one that is not.

use crate::report::Report;
use crate::schema::{Check, CheckKind, ClusterTls, Config, Verify};

/// Fills in what is not written; what is written stays.
pub(crate) fn fill(config: &mut Config, report: &Report<'_>) {
    for (index, listener) in config.listeners.iter_mut().enumerate() {
        if !report.is_written(&format!("listener[{index}].name")) {
            listener.name = listener.bind.to_string();
        }
    }
    for (name, cluster) in &mut config.clusters {
        cluster.name.clone_from(name);
        for (index, server) in cluster.servers.iter_mut().enumerate() {
            if !report.is_written(&format!("cluster.{name}.servers[{index}].name")) {
                server.name = server.address.to_string();
            }
        }
        fill_check(
            &mut cluster.check,
            report.is_written(&format!("cluster.{name}.check.kind")),
        );
        fill_tls(
            &mut cluster.tls,
            report.is_written(&format!("cluster.{name}.tls.verify")),
        );
    }
}

/// An account is given to be used.
fn fill_check(check: &mut Check, kind_is_written: bool) {
    if !kind_is_written && check.user.is_some() {
        check.kind = CheckKind::Login;
    }
}

/// An authority is given to be trusted, and nothing else: the stricter of the two checks.
fn fill_tls(tls: &mut ClusterTls, verify_is_written: bool) {
    if !verify_is_written && tls.ca.is_some() {
        tls.verify = Verify::Identity;
    }
}
