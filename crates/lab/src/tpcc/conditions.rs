//! The conditions of consistency of the standard, 3.3.2.1 to 3.3.2.12: each is a query for what breaks it.

use anyhow::Context;

use super::{DISTRICTS, Size};
use crate::client::Server;

/// Delivered lines of a customer's orders.
const DELIVERED: &str = "(SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) total FROM orders JOIN order_line \
     ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL \
     GROUP BY o_w_id, o_d_id, o_c_id)";
const PAID: &str = "(SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) total FROM history \
     GROUP BY h_c_w_id, h_c_d_id, h_c_id)";

/// What does not hold, each with its number and what differs. `delivered`: orders since the tables were made.
pub(crate) fn check(server: Server, size: Size, delivered: u64) -> anyhow::Result<Vec<String>> {
    let mut client = server.connect()?;
    let mut broken = Vec::new();
    for (number, query) in (1..).zip(queries(size, delivered)) {
        let answer = client
            .query(&format!("{query} LIMIT 3"))
            .with_context(|| format!("checking condition 3.3.2.{number}"))?;
        broken.extend(answer.rows.into_iter().map(|row| {
            let values: Vec<String> = row
                .into_iter()
                .map(|value| value.unwrap_or_else(|| "NULL".to_owned()))
                .collect();
            format!("condition 3.3.2.{number} does not hold: {}", values.join(" "))
        }));
    }
    Ok(broken)
}

fn queries(size: Size, delivered: u64) -> [String; 12] {
    let at_first = size.warehouses * DISTRICTS * size.delivered() + delivered;
    let of_district = "'warehouse', d_w_id, 'district', d_id";
    let of_customer = "'warehouse', c_w_id, 'district', c_d_id, 'customer', c_id";
    let to_delivered =
        format!("LEFT JOIN {DELIVERED} d ON d.o_w_id = c_w_id AND d.o_d_id = c_d_id AND d.o_c_id = c_id");
    let to_paid =
        format!("LEFT JOIN {PAID} p ON p.h_c_w_id = c_w_id AND p.h_c_d_id = c_d_id AND p.h_c_id = c_id");
    [
        "SELECT 'warehouse', w_id, 'w_ytd', w_ytd, 'd_ytd', total FROM warehouse LEFT JOIN \
         (SELECT d_w_id, SUM(d_ytd) total FROM district GROUP BY d_w_id) d ON d_w_id = w_id \
         WHERE NOT w_ytd <=> total"
            .to_owned(),
        format!(
            "SELECT {of_district}, 'd_next_o_id', d_next_o_id, 'last order', o, 'last new order', n FROM \
             (SELECT d_w_id, d_id, d_next_o_id, \
              (SELECT MAX(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) o, \
              (SELECT MAX(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id) n \
              FROM district) all_districts \
             WHERE NOT d_next_o_id - 1 <=> o OR n <> o"
        ),
        "SELECT 'warehouse', no_w_id, 'district', no_d_id, 'first', MIN(no_o_id), 'last', MAX(no_o_id), 'rows', \
         COUNT(*) FROM new_order GROUP BY no_w_id, no_d_id HAVING MAX(no_o_id) - MIN(no_o_id) + 1 <> COUNT(*)"
            .to_owned(),
        format!(
            "SELECT {of_district}, 'o_ol_cnt', o, 'lines', l FROM (SELECT d_w_id, d_id, \
              (SELECT SUM(o_ol_cnt) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) o, \
              (SELECT COUNT(*) FROM order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id) l \
              FROM district) all_districts WHERE NOT o <=> l"
        ),
        "SELECT 'warehouse', o_w_id, 'district', o_d_id, 'order', o_id, 'o_carrier_id', o_carrier_id, \
         'new order', no_o_id FROM orders LEFT JOIN new_order \
         ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
         WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)"
            .to_owned(),
        "SELECT 'warehouse', o_w_id, 'district', o_d_id, 'order', o_id, 'o_ol_cnt', o_ol_cnt, 'lines', l \
         FROM orders LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, COUNT(*) l FROM order_line \
         GROUP BY ol_w_id, ol_d_id, ol_o_id) all_lines ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
         WHERE NOT o_ol_cnt <=> l"
            .to_owned(),
        "SELECT 'warehouse', o_w_id, 'district', o_d_id, 'order', o_id, 'line', ol_number, 'ol_delivery_d', \
         ol_delivery_d, 'o_carrier_id', o_carrier_id FROM orders JOIN order_line \
         ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id \
         WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)"
            .to_owned(),
        "SELECT 'warehouse', w_id, 'w_ytd', w_ytd, 'h_amount', total FROM warehouse LEFT JOIN \
         (SELECT h_w_id, SUM(h_amount) total FROM history GROUP BY h_w_id) h ON h_w_id = w_id \
         WHERE NOT w_ytd <=> total"
            .to_owned(),
        format!(
            "SELECT {of_district}, 'd_ytd', d_ytd, 'h_amount', total FROM district LEFT JOIN \
             (SELECT h_w_id, h_d_id, SUM(h_amount) total FROM history GROUP BY h_w_id, h_d_id) h \
             ON h_w_id = d_w_id AND h_d_id = d_id WHERE NOT d_ytd <=> total"
        ),
        format!(
            "SELECT {of_customer}, 'c_balance', c_balance, 'delivered', d.total, 'paid', p.total \
             FROM customer {to_delivered} {to_paid} \
             WHERE c_balance <> COALESCE(d.total, 0) - COALESCE(p.total, 0)"
        ),
        format!(
            "SELECT 'orders that are not new', o - n, 'delivered', {at_first} FROM \
             (SELECT (SELECT COUNT(*) FROM orders) o, (SELECT COUNT(*) FROM new_order) n) counted \
             WHERE o - n <> {at_first}"
        ),
        format!(
            "SELECT {of_customer}, 'c_balance', c_balance, 'c_ytd_payment', c_ytd_payment, 'delivered', d.total \
             FROM customer {to_delivered} WHERE c_balance + c_ytd_payment <> COALESCE(d.total, 0)"
        ),
    ]
}

#[cfg(test)]
mod tests {
    use sandbox::{Kind, Sandbox, Spec};

    use super::*;
    use crate::client::SANDBOX;
    use crate::tpcc::{load, run};

    const SIZE: Size = Size {
        warehouses: 2,
        items: 200,
        customers: 30,
    };

    /// One statement that breaks each, and one that mends it.
    const SEEDS: [(&str, &str); 12] = [
        (
            "UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 1",
            "UPDATE warehouse SET w_ytd = w_ytd - 1 WHERE w_id = 1",
        ),
        (
            "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 3",
            "UPDATE district SET d_next_o_id = d_next_o_id - 1 WHERE d_w_id = 1 AND d_id = 3",
        ),
        (
            "INSERT INTO new_order VALUES (1, 2, 1)",
            "DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 2 AND no_o_id = 1",
        ),
        (
            "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_w_id = 2 AND o_d_id = 1 AND o_id = 5",
            "UPDATE orders SET o_ol_cnt = o_ol_cnt - 1 WHERE o_w_id = 2 AND o_d_id = 1 AND o_id = 5",
        ),
        (
            "UPDATE orders SET o_carrier_id = NULL WHERE o_w_id = 2 AND o_d_id = 1 AND o_id = 5",
            "UPDATE orders SET o_carrier_id = 1 WHERE o_w_id = 2 AND o_d_id = 1 AND o_id = 5",
        ),
        (
            "UPDATE orders SET o_ol_cnt = o_ol_cnt + IF(o_id = 5, 1, -1) WHERE o_w_id = 1 AND o_d_id = 1 AND o_id IN (5, 6)",
            "UPDATE orders SET o_ol_cnt = o_ol_cnt - IF(o_id = 5, 1, -1) WHERE o_w_id = 1 AND o_d_id = 1 AND o_id IN (5, 6)",
        ),
        (
            "UPDATE order_line SET ol_delivery_d = NULL WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 2 AND ol_number = 1",
            "UPDATE order_line SET ol_delivery_d = NOW() WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 2 AND ol_number = 1",
        ),
        (
            "UPDATE history SET h_amount = h_amount + 1 WHERE h_id = 7",
            "UPDATE history SET h_amount = h_amount - 1 WHERE h_id = 7",
        ),
        (
            "UPDATE district SET d_ytd = d_ytd + IF(d_id = 1, 1, -1) WHERE d_w_id = 1 AND d_id IN (1, 2)",
            "UPDATE district SET d_ytd = d_ytd - IF(d_id = 1, 1, -1) WHERE d_w_id = 1 AND d_id IN (1, 2)",
        ),
        (
            "UPDATE customer SET c_balance = c_balance + 1, c_ytd_payment = c_ytd_payment - 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
            "UPDATE customer SET c_balance = c_balance - 1, c_ytd_payment = c_ytd_payment + 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
        ),
        ("DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 4", ""),
        (
            "UPDATE customer SET c_ytd_payment = c_ytd_payment + 1 WHERE c_w_id = 1 AND c_d_id = 1 AND c_id = 1",
            "",
        ),
    ];

    fn conditions_are_found(kind: Kind) {
        let servers = Sandbox::start(Spec::new(kind)).unwrap();
        servers.primary().sql("CREATE DATABASE sbtest").unwrap();
        let server = Server {
            address: servers.primary().address().parse().unwrap(),
            account: SANDBOX,
        };
        // Our client knows the short way of `caching_sha2_password` only.
        let mut login = servers.primary().client();
        login.args(["--user=forebay", "--password=forebay", "--execute=DO 1"]);
        assert!(login.status().unwrap().success());
        load(server, SIZE).unwrap();
        assert_eq!(check(server, SIZE, 0).unwrap(), Vec::<String>::new(), "as loaded");
        let done = run(server, SIZE, 4, 2.0, 1).unwrap();
        assert!(
            done.times.iter().all(|times| !times.is_empty()),
            "each kind has run"
        );
        assert!(done.delivered > 0);
        assert_eq!(check(server, SIZE, done.delivered).unwrap(), Vec::<String>::new());
        let mut client = server.connect().unwrap();
        for (number, (seed, mend)) in (1..).zip(SEEDS) {
            client.query(seed).unwrap();
            let broken = check(server, SIZE, done.delivered).unwrap();
            let found = format!("condition 3.3.2.{number} does not hold");
            assert!(
                broken.iter().any(|line| line.starts_with(&found)),
                "{seed}: {broken:?}"
            );
            if !mend.is_empty() {
                client.query(mend).unwrap();
                assert_eq!(
                    check(server, SIZE, done.delivered).unwrap(),
                    Vec::<String>::new(),
                    "{mend}"
                );
            }
        }
    }

    #[test]
    fn a_broken_condition_is_found_on_mariadb() {
        conditions_are_found(Kind::Mariadb);
    }

    #[test]
    fn a_broken_condition_is_found_on_mysql() {
        conditions_are_found(Kind::Mysql);
    }
}
