-- What every client reads, on both kinds of server. Runs as root, directly on the server, with `forebay_clients` as
-- the default database.
CREATE TABLE digits (d INT NOT NULL);
INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);

-- 200 000 rows; SUM(id) is 20000100000 and label is always 'row ID é😀'.
CREATE TABLE numbers (id INT NOT NULL PRIMARY KEY, label VARCHAR(60) NOT NULL) CHARACTER SET utf8mb4;
INSERT INTO numbers
SELECT n, CONCAT('row ', n, ' é😀')
FROM (SELECT 1 + a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d + 100000 * f.d AS n
      FROM digits a, digits b, digits c, digits d, digits e, digits f WHERE f.d < 2) AS all_numbers;

DELIMITER //
CREATE PROCEDURE two_results()
BEGIN
  SELECT 1 AS a, 'first' AS b;
  SELECT id, label FROM numbers WHERE id <= 3 ORDER BY id;
END//
CREATE PROCEDURE double_it(IN x INT, OUT y INT)
BEGIN
  SET y = 2 * x;
END//
DELIMITER ;
