-- What one client writes to. Runs with that client's own database as the default database, before the client starts.
CREATE TABLE types (
  id INT NOT NULL PRIMARY KEY,
  t TINYINT, s SMALLINT, m MEDIUMINT, i INT, l BIGINT, ul BIGINT UNSIGNED, f FLOAT, d DOUBLE, dc DECIMAL(30,10),
  dt DATE, tm TIME(6), ts DATETIME(6), y YEAR,
  c VARCHAR(100), bin VARBINARY(100), tx TEXT, bl BLOB, js JSON, bt BIT(10), en ENUM('one', 'two'), st SET('x', 'y', 'z')
) CHARACTER SET utf8mb4;
CREATE TABLE blobs (id INT NOT NULL PRIMARY KEY, body LONGBLOB NOT NULL);
CREATE TABLE ledger (id INT NOT NULL PRIMARY KEY, amount INT NOT NULL) ENGINE=InnoDB;
CREATE TABLE batch (id INT NOT NULL PRIMARY KEY, label VARCHAR(60)) CHARACTER SET utf8mb4;
CREATE TABLE loaded (id INT NOT NULL PRIMARY KEY, label VARCHAR(60)) CHARACTER SET utf8mb4;
