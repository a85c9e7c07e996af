# Written for the admin interface by hand: two shards, chosen by user and by schema.
INSERT INTO mysql_servers (hostgroup_id, hostname, port) VALUES (0, 'a1', '3306'), (1, 'a2', '3306');
INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (10, 'b1'), (11, 'b2');
INSERT INTO mysql_group_replication_hostgroups (writer_hostgroup, backup_writer_hostgroup, reader_hostgroup, offline_hostgroup, active, max_writers, writer_is_also_reader) VALUES (0, 2, 1, 3, 1, 1, 2), (10, 12, 11, 13, 1, 1, 0);
INSERT INTO mysql_users (username, password, default_hostgroup) VALUES ('alice', 'x', 0), ('anna', 'x', 0), ('bob', 'y', 10);
INSERT INTO mysql_query_rules (rule_id, active, match_pattern, negate_match_pattern, destination_hostgroup, apply) VALUES (1, 1, '^SELECT', 1, 10, 0);
INSERT INTO mysql_query_rules (rule_id, active, match_digest, destination_hostgroup, apply) VALUES (2, 1, '^SELECT', 99, 1);
INSERT INTO mysql_query_rules_fast_routing (username, schemaname, flagIN, destination_hostgroup, comment) VALUES ('bob', 'shop', 0, 11, 'reads only');
UPDATE global_variables SET variable_value='mon' WHERE variable_name='mysql-monitor_username';
SET mysql-monitor_groupreplication_healthcheck_timeout = 800;
UPDATE mysql_servers SET weight=7 WHERE hostname='b2';
LOAD MYSQL SERVERS TO RUNTIME;
SAVE MYSQL SERVERS TO DISK;
