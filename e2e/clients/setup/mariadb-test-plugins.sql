-- Accounts of the plugins in the distribution's mariadb-test package, where the server offers them: they speak
-- `dialog` and `mysql_clear_password` without PAM.
INSTALL SONAME 'dialog_examples';
CREATE USER dialog@'%' IDENTIFIED VIA three_attempts USING 'dialog secret';
INSTALL SONAME 'auth_test_plugin';
CREATE USER clear@'%' IDENTIFIED VIA cleartext_plugin_server USING 'clear secret';
