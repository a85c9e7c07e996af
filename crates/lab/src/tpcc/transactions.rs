//! The five transactions, as a terminal runs them.

use anyhow::{Context, ensure};
use inputs::Random;

use super::{DISTRICTS, Size, last_name, load::money, uneven, within};
use crate::client::{Client, ClientError, Server, StatementAnswer};

/// A transaction that is in the way of others as often as that is told of, and not tried again.
const RETRIES_MAX: u64 = 1000;
/// In a hundred new orders one names an item that nobody has, and is rolled back.
const ROLLED_BACK: u64 = 1;
/// In a hundred transactions.
const SHARES: [(Kind, u64); 5] = [
    (Kind::NewOrder, 45),
    (Kind::Payment, 43),
    (Kind::OrderStatus, 4),
    (Kind::Delivery, 4),
    (Kind::StockLevel, 4),
];
/// Their names, in the order of [`Kind`].
pub(crate) const KINDS: [&str; 5] = ["new order", "payment", "order status", "delivery", "stock level"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

/// Why a transaction has not come to its end.
enum Failure {
    Locked,
    Other(anyhow::Error),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error.is_of_lock() {
            true => Self::Locked,
            false => Self::Other(error.into()),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

/// A client of one warehouse.
pub(super) struct Terminal {
    client: Client,
    random: Random,
    size: Size,
    warehouse: u64,
}

impl Terminal {
    pub(super) fn connect(server: Server, size: Size, number: u64, seed: u64) -> Result<Self, ClientError> {
        Ok(Self {
            client: server.connect()?,
            random: Random::new(seed << 32 | number << 16),
            size,
            warehouse: 1 + number % size.warehouses,
        })
    }

    /// Runs one of the mix to its end: its kind, the orders that it has delivered, and how often it was run
    /// again.
    pub(super) fn transaction(&mut self) -> anyhow::Result<(Kind, u64, u64)> {
        let mut card = within(&mut self.random, 0, 99);
        let kind = SHARES
            .into_iter()
            .find(|(_, share)| match card.checked_sub(*share) {
                Some(rest) => {
                    card = rest;
                    false
                }
                None => true,
            })
            .map_or(Kind::StockLevel, |(kind, _)| kind);
        let input = self.random.number();
        let mut retried = 0;
        loop {
            self.random = Random::new(input);
            match self.attempt(kind) {
                Ok(delivered) => return Ok((kind, delivered, retried)),
                Err(Failure::Locked) => {
                    self.client.query("ROLLBACK")?;
                    retried += 1;
                    ensure!(
                        retried < RETRIES_MAX,
                        "{}: locked {retried} times in a row",
                        KINDS[kind as usize]
                    );
                }
                Err(Failure::Other(error)) => return Err(error.context(KINDS[kind as usize])),
            }
        }
    }

    fn attempt(&mut self, kind: Kind) -> Result<u64, Failure> {
        self.client.query("START TRANSACTION")?;
        let mut delivered = 0;
        let is_kept = match kind {
            Kind::NewOrder => self.new_order()?,
            Kind::Payment => self.payment()?,
            Kind::OrderStatus => self.order_status()?,
            Kind::Delivery => {
                delivered = self.delivery()?;
                true
            }
            Kind::StockLevel => self.stock_level()?,
        };
        self.client.query(if is_kept { "COMMIT" } else { "ROLLBACK" })?;
        Ok(delivered)
    }

    fn new_order(&mut self) -> Result<bool, Failure> {
        let (w, d, c) = (self.warehouse, self.district(), self.customer());
        let is_rolled_back = within(&mut self.random, 1, 100) <= ROLLED_BACK;
        let mut items: Vec<(u64, u64, u64)> = (0..within(&mut self.random, 5, 15))
            .map(|_| {
                let item = uneven(&mut self.random, 8191, 1, self.size.items);
                let supply = if within(&mut self.random, 1, 100) == 1 {
                    self.other_warehouse()
                } else {
                    w
                };
                (supply, item, within(&mut self.random, 1, 10))
            })
            .collect();
        // Everybody takes the locks of his lines in one order.
        items.sort_unstable();
        if is_rolled_back && let Some(last) = items.last_mut() {
            last.1 = self.size.items + 1;
        }
        self.client.query(&format!(
            "SELECT c_discount, c_last, c_credit, w_tax FROM customer JOIN warehouse ON w_id = c_w_id \
             WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = {c}"
        ))?;
        let district = format!("WHERE d_w_id = {w} AND d_id = {d}");
        let order = number(&self.client.query(&format!(
            "SELECT d_next_o_id, d_tax FROM district {district} FOR UPDATE"
        ))?)?;
        self.client.query(&format!(
            "UPDATE district SET d_next_o_id = d_next_o_id + 1 {district}"
        ))?;
        let (count, is_local) = (items.len(), items.iter().all(|(supply, ..)| *supply == w));
        let is_local = u8::from(is_local);
        self.client.query(&format!(
            "INSERT INTO orders VALUES ({w}, {d}, {order}, {c}, NOW(), NULL, {count}, {is_local})"
        ))?;
        self.client
            .query(&format!("INSERT INTO new_order VALUES ({w}, {d}, {order})"))?;
        for (line, (supply, item, quantity)) in (1..).zip(items) {
            let found = self.client.query(&format!(
                "SELECT i_price, i_name, i_data FROM item WHERE i_id = {item}"
            ))?;
            let Some(price) = found.value() else {
                return Ok(false);
            };
            let stock = format!("WHERE s_w_id = {supply} AND s_i_id = {item}");
            let found = self.client.query(&format!(
                "SELECT s_quantity, s_dist, s_data FROM stock {stock} FOR UPDATE"
            ))?;
            let left = number(&found)?;
            let left = if left >= quantity + 10 {
                left - quantity
            } else {
                left + 91 - quantity
            };
            let remote = u8::from(supply != w);
            self.client.query(&format!(
                "UPDATE stock SET s_quantity = {left}, s_ytd = s_ytd + {quantity}, s_order_cnt = s_order_cnt + 1, \
                 s_remote_cnt = s_remote_cnt + {remote} {stock}"
            ))?;
            self.client.query(&format!(
                "INSERT INTO order_line VALUES ({w}, {d}, {order}, {line}, {item}, {supply}, NULL, {quantity}, \
                 {quantity} * {price}, '{item:l>24}')"
            ))?;
        }
        Ok(true)
    }

    fn payment(&mut self) -> Result<bool, Failure> {
        let (w, d) = (self.warehouse, self.district());
        let amount = money(within(&mut self.random, 100, 500_000));
        let (of_w, of_d) = match within(&mut self.random, 1, 100) {
            ..=85 => (w, d),
            _ => (self.other_warehouse(), self.district()),
        };
        self.client.query(&format!(
            "UPDATE warehouse SET w_ytd = w_ytd + {amount} WHERE w_id = {w}"
        ))?;
        self.client
            .query(&format!("SELECT w_name FROM warehouse WHERE w_id = {w}"))?;
        let district = format!("WHERE d_w_id = {w} AND d_id = {d}");
        self.client.query(&format!(
            "UPDATE district SET d_ytd = d_ytd + {amount} {district}"
        ))?;
        self.client
            .query(&format!("SELECT d_name FROM district {district}"))?;
        let c = self.someone(of_w, of_d)?;
        let customer = format!("WHERE c_w_id = {of_w} AND c_d_id = {of_d} AND c_id = {c}");
        self.client.query(&format!(
            "SELECT c_first, c_last, c_credit, c_discount, c_balance FROM customer {customer} FOR UPDATE"
        ))?;
        self.client.query(&format!(
            "UPDATE customer SET c_balance = c_balance - {amount}, c_ytd_payment = c_ytd_payment + {amount}, \
             c_payment_cnt = c_payment_cnt + 1, \
             c_data = IF(c_credit = 'BC', LEFT(CONCAT('{c} {of_d} {of_w} {d} {w} {amount}|', c_data), 500), c_data) \
             {customer}"
        ))?;
        self.client.query(&format!(
            "INSERT INTO history VALUES (NULL, {c}, {of_d}, {of_w}, {d}, {w}, NOW(), {amount}, 'W{w} D{d}')"
        ))?;
        Ok(true)
    }

    fn order_status(&mut self) -> Result<bool, Failure> {
        let (w, d) = (self.warehouse, self.district());
        let c = self.someone(w, d)?;
        self.client.query(&format!(
            "SELECT c_first, c_last, c_balance FROM customer WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = {c}"
        ))?;
        let order = number(&self.client.query(&format!(
            "SELECT o_id, o_entry_d, o_carrier_id FROM orders WHERE o_w_id = {w} AND o_d_id = {d} AND o_c_id = {c} \
             ORDER BY o_id DESC LIMIT 1"
        ))?)?;
        self.client.query(&format!(
            "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
             WHERE ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id = {order}"
        ))?;
        Ok(true)
    }

    /// The oldest order of each district, where one waits.
    fn delivery(&mut self) -> Result<u64, Failure> {
        let (w, carrier) = (self.warehouse, within(&mut self.random, 1, 10));
        let mut delivered = 0;
        for d in 1..=DISTRICTS {
            let oldest = self.client.query(&format!(
                "SELECT no_o_id FROM new_order WHERE no_w_id = {w} AND no_d_id = {d} ORDER BY no_o_id LIMIT 1 FOR UPDATE"
            ))?;
            if oldest.rows.is_empty() {
                continue;
            }
            let order = number(&oldest)?;
            self.client.query(&format!(
                "DELETE FROM new_order WHERE no_w_id = {w} AND no_d_id = {d} AND no_o_id = {order}"
            ))?;
            let of_order = format!("WHERE o_w_id = {w} AND o_d_id = {d} AND o_id = {order}");
            // An order newer than what this transaction reads otherwise.
            let c = number(
                &self
                    .client
                    .query(&format!("SELECT o_c_id FROM orders {of_order} FOR UPDATE"))?,
            )?;
            self.client
                .query(&format!("UPDATE orders SET o_carrier_id = {carrier} {of_order}"))?;
            let lines = format!("WHERE ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id = {order}");
            self.client
                .query(&format!("UPDATE order_line SET ol_delivery_d = NOW() {lines}"))?;
            let total = self
                .client
                .query(&format!("SELECT SUM(ol_amount) FROM order_line {lines}"))?;
            let total = value(&total)?;
            self.client.query(&format!(
                "UPDATE customer SET c_balance = c_balance + {total}, c_delivery_cnt = c_delivery_cnt + 1 \
                 WHERE c_w_id = {w} AND c_d_id = {d} AND c_id = {c}"
            ))?;
            delivered += 1;
        }
        Ok(delivered)
    }

    fn stock_level(&mut self) -> Result<bool, Failure> {
        let (w, d) = (self.warehouse, self.district());
        let threshold = within(&mut self.random, 10, 20);
        let next = number(&self.client.query(&format!(
            "SELECT d_next_o_id FROM district WHERE d_w_id = {w} AND d_id = {d}"
        ))?)?;
        let from = next.saturating_sub(20);
        self.client.query(&format!(
            "SELECT COUNT(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id \
             WHERE ol_w_id = {w} AND ol_d_id = {d} AND ol_o_id >= {from} AND ol_o_id < {next} \
             AND s_quantity < {threshold}"
        ))?;
        Ok(true)
    }

    /// Of ten customers six are known by their last name: the middle one of those who have it.
    fn someone(&mut self, w: u64, d: u64) -> Result<u64, Failure> {
        let by_id = self.customer();
        if within(&mut self.random, 1, 100) > 60 {
            return Ok(by_id);
        }
        let names = self.size.customers.min(1000);
        let name = last_name(uneven(&mut self.random, 255, 0, names - 1));
        let found = self.client.query(&format!(
            "SELECT c_id FROM customer WHERE c_w_id = {w} AND c_d_id = {d} AND c_last = '{name}' ORDER BY c_first"
        ))?;
        let middle = found.rows.len().saturating_sub(1) / 2;
        let rows = found.rows.into_iter().skip(middle).take(1).collect();
        Ok(number(&StatementAnswer { rows, affected: 0 })?)
    }

    fn district(&mut self) -> u64 {
        within(&mut self.random, 1, DISTRICTS)
    }

    fn customer(&mut self) -> u64 {
        uneven(&mut self.random, 1023, 1, self.size.customers)
    }

    /// Any but its own, where there is another.
    fn other_warehouse(&mut self) -> u64 {
        if self.size.warehouses == 1 {
            return self.warehouse;
        }
        let step = within(&mut self.random, 1, self.size.warehouses - 1);
        (self.warehouse - 1 + step) % self.size.warehouses + 1
    }
}

/// The first value of the first row.
fn value(answer: &StatementAnswer) -> anyhow::Result<&str> {
    answer.value().context("a row is missing")
}

fn number(answer: &StatementAnswer) -> anyhow::Result<u64> {
    Ok(value(answer)?.parse()?)
}
