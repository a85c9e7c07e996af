-- Accounts of the login checks on MariaDB, one a plugin. `run` names them to the clients in FOREBAY_LOGINS.
-- An anonymous account of the local host would be taken before the named ones.
DELETE FROM mysql.global_priv WHERE User = '';
FLUSH PRIVILEGES;
CREATE USER app@'%' IDENTIFIED VIA mysql_native_password USING PASSWORD('app secret');
GRANT ALL ON *.* TO app@'%' WITH GRANT OPTION;
CREATE USER native@'%' IDENTIFIED VIA mysql_native_password USING PASSWORD('native secret');
GRANT SELECT ON forebay_clients.* TO native@'%';
CREATE USER nopass@'%' IDENTIFIED VIA mysql_native_password;
INSTALL SONAME 'auth_ed25519';
CREATE USER ed25519@'%' IDENTIFIED VIA ed25519 USING PASSWORD('ed25519 secret');
