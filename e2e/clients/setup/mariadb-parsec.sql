-- The account of the parsec login check, where the server is MariaDB 11.6 or newer.
INSTALL SONAME 'auth_parsec';
CREATE USER parsec@'%' IDENTIFIED VIA parsec USING PASSWORD('parsec secret');
