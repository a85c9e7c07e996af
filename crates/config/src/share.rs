//! What a gateway has of the limits that it shares with others.

use crate::schema::Config;

impl Config {
    /// Leaves this gateway one of `parts` equal parts of each limit that all gateways have together, and
    /// never less than one: of `max_connections` of servers and users, and of `max_concurrency`, `rate` and
    /// `burst` of rules.
    pub fn share(&mut self, parts: u32) {
        let part = |limit: &mut u32| {
            if *limit > 0 {
                *limit = (*limit / parts.max(1)).max(1);
            }
        };
        for cluster in self.clusters.values_mut() {
            cluster
                .servers
                .iter_mut()
                .for_each(|server| part(&mut server.max_connections));
            cluster
                .srv
                .iter_mut()
                .for_each(|srv| part(&mut srv.max_connections));
            cluster.pd.iter_mut().for_each(|pd| part(&mut pd.max_connections));
            cluster
                .endpoint_slices
                .iter_mut()
                .for_each(|slices| part(&mut slices.max_connections));
        }
        let of_users = self.users.iter_mut().map(|user| &mut user.max_connections);
        let of_rules = self
            .rules
            .iter_mut()
            .flat_map(|rule| [&mut rule.max_concurrency, &mut rule.rate, &mut rule.burst]);
        of_users.chain(of_rules).flatten().for_each(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_divided_and_others_are_not() {
        let text = r#"
            max_connections = 30
            [[listener]]
            bind = "127.0.0.1:3306"
            cluster = "main"
            [cluster.main]
            servers = [
                { address = "a:1", max_connections = 31 },
                { address = "b:1", max_connections = 2 },
                { address = "c:1" },
            ]
            [[rule]]
            name = "slow"
            digest_text = "x"
            max_concurrency = 7
        "#;
        let mut config = Config::parse(text, "text").unwrap();
        config.share(3);
        let servers = config.clusters["main"].servers.iter();
        let limits: Vec<u32> = servers.map(|server| server.max_connections).collect();
        assert_eq!(limits, [10, 1, 0]);
        assert_eq!(config.max_connections, Some(30));
        assert_eq!(config.rules[0].max_concurrency, Some(2));
    }
}
