//! The tables and what is in them at first.

use std::{fmt::Write, thread};

use anyhow::Context;
use inputs::Random;

use super::{DISTRICTS, Size, last_name, uneven, within};
use crate::client::{Client, ClientError, Server};

/// Rows of an INSERT.
const BATCH: usize = 500;

const SCHEMA: &[&str] = &[
    "CREATE TABLE warehouse (w_id INT PRIMARY KEY, w_name VARCHAR(10), w_tax DECIMAL(4,4), w_ytd DECIMAL(14,2))",
    "CREATE TABLE district (d_w_id INT, d_id INT, d_name VARCHAR(10), d_tax DECIMAL(4,4), d_ytd DECIMAL(14,2), \
     d_next_o_id INT, PRIMARY KEY (d_w_id, d_id))",
    "CREATE TABLE customer (c_w_id INT, c_d_id INT, c_id INT, c_first VARCHAR(16), c_last VARCHAR(16), \
     c_credit CHAR(2), c_discount DECIMAL(4,4), c_balance DECIMAL(14,2), c_ytd_payment DECIMAL(14,2), \
     c_payment_cnt INT, c_delivery_cnt INT, c_data VARCHAR(500), PRIMARY KEY (c_w_id, c_d_id, c_id), \
     KEY (c_w_id, c_d_id, c_last, c_first))",
    "CREATE TABLE history (h_id BIGINT AUTO_INCREMENT PRIMARY KEY, h_c_id INT, h_c_d_id INT, h_c_w_id INT, \
     h_d_id INT, h_w_id INT, h_date DATETIME, h_amount DECIMAL(6,2), h_data VARCHAR(24))",
    "CREATE TABLE new_order (no_w_id INT, no_d_id INT, no_o_id INT, PRIMARY KEY (no_w_id, no_d_id, no_o_id))",
    "CREATE TABLE orders (o_w_id INT, o_d_id INT, o_id INT, o_c_id INT, o_entry_d DATETIME, o_carrier_id INT, \
     o_ol_cnt INT, o_all_local INT, PRIMARY KEY (o_w_id, o_d_id, o_id), KEY (o_w_id, o_d_id, o_c_id, o_id))",
    "CREATE TABLE order_line (ol_w_id INT, ol_d_id INT, ol_o_id INT, ol_number INT, ol_i_id INT, \
     ol_supply_w_id INT, ol_delivery_d DATETIME, ol_quantity INT, ol_amount DECIMAL(6,2), ol_dist_info CHAR(24), \
     PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number))",
    "CREATE TABLE item (i_id INT PRIMARY KEY, i_name VARCHAR(24), i_price DECIMAL(5,2), i_data VARCHAR(50))",
    "CREATE TABLE stock (s_w_id INT, s_i_id INT, s_quantity INT, s_dist CHAR(24), s_ytd INT, s_order_cnt INT, \
     s_remote_cnt INT, s_data VARCHAR(50), PRIMARY KEY (s_w_id, s_i_id))",
];

pub(crate) const TABLES: &str =
    "warehouse, district, customer, history, new_order, orders, order_line, item, stock";

pub(crate) fn unload(server: Server) -> Result<(), ClientError> {
    server
        .connect()?
        .query(&format!("DROP TABLE IF EXISTS {TABLES}"))?;
    Ok(())
}

/// Makes the tables anew, several districts side by side.
pub(crate) fn load(server: Server, size: Size) -> anyhow::Result<()> {
    unload(server)?;
    let mut client = server.connect()?;
    for table in SCHEMA {
        client.query(table)?;
    }
    let mut random = Random::new(1);
    let items = (1..=size.items).map(|item| {
        let price = within(&mut random, 100, 10_000);
        format!("{item},'item {item}',{},'{item:a>30}'", money(price))
    });
    insert(&mut client, "item", items)?;
    for warehouse in 1..=size.warehouses {
        let year = money(1000 * DISTRICTS * size.customers);
        insert(
            &mut client,
            "warehouse",
            [format!("{warehouse},'W{warehouse}',0.1,{year}")],
        )?;
        let mut random = Random::new(warehouse);
        let stock = (1..=size.items).map(|item| {
            let quantity = within(&mut random, 10, 100);
            format!("{warehouse},{item},{quantity},'{item:d>24}',0,0,0,'{item:s>30}'")
        });
        insert(&mut client, "stock", stock)?;
        for half in [1..=DISTRICTS / 2, DISTRICTS / 2 + 1..=DISTRICTS] {
            side_by_side(half, |district| fill_district(server, size, warehouse, district))?;
        }
    }
    Ok(())
}

fn side_by_side(
    districts: impl Iterator<Item = u64>,
    fill: impl Fn(u64) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    let fill = &fill;
    thread::scope(|scope| {
        let threads: Vec<_> = districts
            .map(|district| scope.spawn(move || fill(district)))
            .collect();
        for thread in threads {
            crate::joined(thread, "the loader").context("filling a district")?;
        }
        Ok(())
    })
}

/// Everybody has paid 10.00 once, and has one order; of the orders the last three of ten are not delivered.
fn fill_district(server: Server, size: Size, w: u64, d: u64) -> anyhow::Result<()> {
    let mut client = server.connect()?;
    let mut random = Random::new(w << 8 | d);
    let count = size.customers;
    let year = money(1000 * count);
    insert(
        &mut client,
        "district",
        [format!("{w},{d},'D{d}',0.1,{year},{}", count + 1)],
    )?;
    let customers = (1..=count).map(|c| {
        let name = match c {
            1..=1000 => c - 1,
            _ => uneven(&mut random, 255, 0, 999),
        };
        let credit = if within(&mut random, 1, 10) == 1 {
            "BC"
        } else {
            "GC"
        };
        let name = last_name(name);
        format!("{w},{d},{c},'first {c}','{name}','{credit}',0.1,-10.00,10.00,1,0,'{c:c>200}'")
    });
    insert(&mut client, "customer", customers)?;
    let paid = (1..=count).map(|c| format!("NULL,{c},{d},{w},{d},{w},NOW(),10.00,'history'"));
    insert(&mut client, "history", paid)?;
    let waiting = size.delivered() + 1..=count;
    insert(
        &mut client,
        "new_order",
        waiting.map(|order| format!("{w},{d},{order}")),
    )?;
    let mut customers: Vec<u64> = (1..=count).collect();
    for at in (1..customers.len()).rev() {
        customers.swap(at, within(&mut random, 0, at as u64) as usize);
    }
    let (mut orders, mut lines) = (Vec::new(), Vec::new());
    for (order, customer) in (1..=count).zip(customers) {
        let is_delivered = order <= size.delivered();
        let carrier = if is_delivered { "1" } else { "NULL" };
        let of_order = within(&mut random, 5, 15);
        orders.push(format!("{w},{d},{order},{customer},NOW(),{carrier},{of_order},1"));
        for line in 1..=of_order {
            let item = within(&mut random, 1, size.items);
            let (date, amount) = match is_delivered {
                true => ("NOW()", 0),
                false => ("NULL", within(&mut random, 1, 999_999)),
            };
            let amount = money(amount);
            lines.push(format!(
                "{w},{d},{order},{line},{item},{w},{date},5,{amount},'{item:l>24}'"
            ));
        }
    }
    insert(&mut client, "orders", orders)?;
    insert(&mut client, "order_line", lines)
}

fn insert(client: &mut Client, table: &str, rows: impl IntoIterator<Item = String>) -> anyhow::Result<()> {
    let mut rows = rows.into_iter().peekable();
    while rows.peek().is_some() {
        let mut statement = format!("INSERT INTO {table} VALUES ");
        for (at, row) in rows.by_ref().take(BATCH).enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(statement, "{comma}({row})")?;
        }
        client.query(&statement)?;
    }
    Ok(())
}

/// Cents, as a decimal.
pub(super) fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}
