//! What one server has in its binary log another one may not have, nor the same one with other options.

use super::*;
use crate::feed::preflight::Primary;
use crate::mapping::Cascade;

fn primary(logs_cascades: bool) -> Primary {
    Primary {
        flavor: Flavor::MySql,
        uuid: String::new(),
        server_id: 1,
        gtids: true,
        strict: false,
        numbers_alone: false,
        status_question: crate::feed::NEW_STATUS,
        logs_cascades,
        logs_replicated: true,
        filters: Default::default(),
    }
}

#[test]
fn what_foreign_keys_change_is_looked_at_with_each_stream() {
    let mut fed = Fed::new();
    let tables = &mut fed.applier.tables;
    let mut shape = shape("items");
    shape.cascade = Some(Cascade {
        constraint: "fk".into(),
        is_logged: true,
    });
    let mapping = Mapping::new(tables.free_id(), &tables.all[0].config, Some(&shape), Zone::UTC).unwrap();
    tables.follow(0, Arc::new(mapping), Rc::new(RefCell::new(CopyWindow::default())));
    tables.catch_up(0, here());
    tables.serve(&here());
    tables.must_be_logged(&primary(true));
    assert_eq!(fed.served(), [true, true]);
    fed.applier.tables.must_be_logged(&primary(false));
    assert_eq!(fed.served(), [false, true]);
    assert!(fed.reason(0).contains("may not log that"), "{}", fed.reason(0));
}

#[test]
fn a_transaction_that_comes_twice_is_of_another_log() {
    let mut fed = Fed::new();
    let mut come = |number: u64| {
        let gtid = Gtid::MySql {
            uuid: [7; 16],
            tag: Box::default(),
            number,
        };
        fed.applier.inner(Kind::Gtid(gtid))?;
        fed.applier.inner(Kind::Xid(1))
    };
    come(1).unwrap();
    come(3).unwrap();
    come(2).unwrap();
    assert!(matches!(come(3), Err(Ended::Reset)));
}
