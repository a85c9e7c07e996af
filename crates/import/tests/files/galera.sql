-- MySQL dump 10.13  Distrib 8.0.36, for Linux (x86_64)
--
-- Host: 127.0.0.1    Database: main
-- ------------------------------------------------------
/*!40101 SET @OLD_CHARACTER_SET_CLIENT=@@CHARACTER_SET_CLIENT */;
DROP TABLE IF EXISTS `mysql_galera_hostgroups`;
CREATE TABLE mysql_galera_hostgroups (writer_hostgroup INT CHECK (writer_hostgroup>=0) NOT NULL PRIMARY KEY , backup_writer_hostgroup INT NOT NULL , reader_hostgroup INT NOT NULL , offline_hostgroup INT NOT NULL , active INT CHECK (active IN (0,1)) NOT NULL DEFAULT 1 , max_writers INT NOT NULL DEFAULT 1 , writer_is_also_reader INT NOT NULL DEFAULT 0 , max_transactions_behind INT NOT NULL DEFAULT 0 , comment VARCHAR , UNIQUE (reader_hostgroup));
INSERT INTO `mysql_galera_hostgroups` VALUES (1,2,3,9,1,2,1,100,NULL);
CREATE TABLE mysql_servers (hostgroup_id INT NOT NULL DEFAULT 0 , hostname VARCHAR NOT NULL , port INT NOT NULL DEFAULT 3306 , gtid_port INT NOT NULL DEFAULT 0 , status VARCHAR NOT NULL DEFAULT 'ONLINE' , weight INT NOT NULL DEFAULT 1 , compression INT NOT NULL DEFAULT 0 , max_connections INT NOT NULL DEFAULT 1000 , max_replication_lag INT NOT NULL DEFAULT 0 , use_ssl INT NOT NULL DEFAULT 0 , max_latency_ms INT UNSIGNED NOT NULL DEFAULT 0 , comment VARCHAR NOT NULL DEFAULT '' , PRIMARY KEY (hostgroup_id, hostname, port) );
INSERT INTO `mysql_servers` VALUES (1,'10.0.0.1',3306,0,'ONLINE',100,0,1000,0,1,0,''),(2,'10.0.0.2',3306,0,'ONLINE',10,0,1000,0,1,0,''),(3,'10.0.0.2',3306,0,'ONLINE',10,0,1000,0,1,0,''),(3,'10.0.0.3',3306,0,'SHUNNED',10,0,1000,0,1,0,''),(50,'fd00::50',3307,0,'ONLINE',1,0,1000,0,0,0,'staging');
CREATE TABLE mysql_users (username VARCHAR NOT NULL , password VARCHAR , active INT NOT NULL DEFAULT 1 , use_ssl INT NOT NULL DEFAULT 0 , default_hostgroup INT NOT NULL DEFAULT 0 , PRIMARY KEY (username));
INSERT INTO `mysql_users` VALUES ('app','se\'cret',1,0,1);
CREATE TABLE mysql_query_rules (rule_id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL , active INT NOT NULL DEFAULT 0 , match_digest VARCHAR , match_pattern VARCHAR , re_modifiers VARCHAR DEFAULT 'CASELESS' , destination_hostgroup INT DEFAULT NULL , mirror_hostgroup INT UNSIGNED , apply INT NOT NULL DEFAULT 0 , attributes VARCHAR NOT NULL DEFAULT '');
INSERT INTO `mysql_query_rules` VALUES (1,1,'^SELECT .*\\?$',NULL,'CASELESS',3,NULL,1,''),(2,1,NULL,'^INSERT INTO audit',NULL,NULL,50,0,'{"flags":1}');
CREATE TABLE runtime_mysql_servers (hostgroup_id INT NOT NULL DEFAULT 0 , hostname VARCHAR NOT NULL);
INSERT INTO `runtime_mysql_servers` VALUES (1,'10.0.0.1');
CREATE TABLE global_variables (variable_name VARCHAR NOT NULL PRIMARY KEY , variable_value VARCHAR NOT NULL);
INSERT INTO `global_variables` VALUES ('mysql-interfaces','127.0.0.1:3306'),('mysql-multiplexing','false'),('mysql-monitor_username','mon'),('mysql-monitor_password','p\\w'),('mysql-monitor_galera_healthcheck_interval','5000'),('mysql-ssl_p2s_ca','/etc/ssl/ca.pem'),('mysql-default_query_delay','0');
/*!40101 SET CHARACTER_SET_CLIENT=@OLD_CHARACTER_SET_CLIENT */;
