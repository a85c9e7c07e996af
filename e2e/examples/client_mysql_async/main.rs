//! mysql_async through the gateway: one line a check of `e2e/clients/checks`, see `e2e/clients/README.md`.
//!
//! `e2e/clients/run` starts it; what to connect to is in the environment (`FOREBAY_HOST` and others).

mod data;
mod login;
mod results;
mod session;
mod target;

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use target::{Absent, absent};

type Check = fn() -> Pin<Box<dyn Future<Output = anyhow::Result<()>>>>;

/// How long one check may take; far above what any needs.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);

const LOGINS: &[(&str, Check)] = &[
    ("login.mysql_native_password", || {
        Box::pin(login::plain("mysql_native_password"))
    }),
    ("login.caching_sha2_password.rsa", || {
        Box::pin(login::sha2_full(false))
    }),
    ("login.caching_sha2_password.tls", || {
        Box::pin(login::sha2_full(true))
    }),
    (
        "login.caching_sha2_password.fast",
        || Box::pin(login::sha2_fast()),
    ),
    ("login.sha256_password.rsa", || {
        Box::pin(absent("mysql_async has no sha256_password"))
    }),
    ("login.sha256_password.tls", || {
        Box::pin(absent("mysql_async has no sha256_password"))
    }),
    ("login.client_ed25519", || {
        Box::pin(login::plain("client_ed25519"))
    }),
    ("login.parsec", || {
        Box::pin(absent("mysql_async is built without parsec"))
    }),
    ("login.dialog", || Box::pin(absent("mysql_async has no dialog"))),
    ("login.mysql_clear_password", || Box::pin(login::clear())),
    ("login.empty_password", || Box::pin(login::empty_password())),
    ("login.wrong_password", || Box::pin(login::wrong_password())),
    ("login.unknown_database", || Box::pin(login::unknown_database())),
    ("tls.verified", || Box::pin(login::tls_verified())),
    ("tls.wrong_ca", || Box::pin(login::tls_wrong_ca())),
    ("attributes", || Box::pin(login::attributes())),
];

const DATA: &[(&str, Check)] = &[
    ("text.utf8mb4", || Box::pin(data::text_utf8mb4())),
    ("text.types", || Box::pin(data::text_types())),
    ("prepared.types", || Box::pin(data::prepared_types())),
    ("prepared.repeat", || Box::pin(data::prepared_repeat())),
    ("prepared.long_data", || Box::pin(data::prepared_long_data())),
    ("result.big", || Box::pin(results::big())),
    ("result.stream", || Box::pin(results::stream())),
    ("result.cursor", || {
        Box::pin(absent("mysql_async opens no server-side cursor"))
    }),
    ("blob.20mb", || Box::pin(data::blob(20 << 20, None))),
    ("error.no_such_table", || Box::pin(results::error_no_such_table())),
    ("transaction.commit", || Box::pin(session::transaction_commit())),
    ("transaction.rollback", || {
        Box::pin(session::transaction_rollback())
    }),
    ("infile.load", || Box::pin(results::infile_load())),
    ("infile.refused", || Box::pin(results::infile_refused())),
    ("multi.statements", || Box::pin(results::multi_statements())),
    ("multi.error", || Box::pin(results::multi_error())),
    ("call.results", || Box::pin(results::call_results())),
    ("call.out", || Box::pin(results::call_out())),
    ("compression.zlib", || Box::pin(data::compressed())),
    ("compression.zstd", || {
        Box::pin(absent("mysql_async has zlib only"))
    }),
];

const SESSION: &[(&str, Check)] = &[
    ("session.change_user", || Box::pin(session::change_user())),
    ("session.reset", || Box::pin(session::reset())),
    ("session.use", || Box::pin(session::select_database())),
    ("session.ping", || Box::pin(session::ping())),
    ("cancel.by_connection_id", || {
        Box::pin(session::cancel_by_connection_id())
    }),
    ("cancel.by_client", || Box::pin(session::cancel_by_client())),
    ("batch.insert", || Box::pin(results::batch_insert())),
    ("batch.rewritten", || {
        Box::pin(absent("mysql_async rewrites no batches"))
    }),
    ("batch.bulk", || {
        Box::pin(absent("mysql_async has no COM_STMT_BULK_EXECUTE"))
    }),
    ("pipeline", || {
        Box::pin(absent("mysql_async waits for every answer"))
    }),
    ("query_attributes", || {
        Box::pin(absent("mysql_async does not send query attributes"))
    }),
    ("tool.status", || Box::pin(absent("a library, no tools"))),
    ("tool.dump", || Box::pin(absent("a library, no tools"))),
    ("tool.binlog", || Box::pin(absent("a library, no tools"))),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut passed = true;
    for (name, check) in [LOGINS, DATA, SESSION].concat() {
        passed &= report(name, tokio::time::timeout(CHECK_TIMEOUT, check()).await);
    }
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Prints the line of one check and says whether it is good.
fn report(name: &str, outcome: Result<anyhow::Result<()>, tokio::time::error::Elapsed>) -> bool {
    match outcome {
        Ok(Ok(())) => println!("ok {name}"),
        Ok(Err(error)) => match error.downcast_ref::<Absent>() {
            Some(why) => println!("absent {name}: {why}"),
            None => {
                println!("FAILED {name}: {}", format!("{error:#}").replace('\n', " "));
                return false;
            }
        },
        Err(_) => {
            println!("FAILED {name}: no end after {CHECK_TIMEOUT:?}");
            return false;
        }
    }
    true
}
