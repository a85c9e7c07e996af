-- Accounts of the login checks on MySQL 9, one a plugin. `run` names them to the clients in FOREBAY_LOGINS.
CREATE USER app@'%' IDENTIFIED WITH caching_sha2_password BY 'app secret';
GRANT ALL ON *.* TO app@'%' WITH GRANT OPTION;
CREATE USER sha2@'%' IDENTIFIED WITH caching_sha2_password BY 'sha2 secret';
GRANT SELECT ON forebay_clients.* TO sha2@'%';
CREATE USER sha256@'%' IDENTIFIED WITH sha256_password BY 'sha256 secret';
CREATE USER nopass@'%' IDENTIFIED WITH caching_sha2_password BY '';
SET GLOBAL local_infile = ON;
INSTALL COMPONENT 'file://component_query_attributes';
