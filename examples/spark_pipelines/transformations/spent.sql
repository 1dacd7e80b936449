CREATE MATERIALIZED VIEW spent AS
SELECT customer, count(*) AS orders, sum(amount) AS amount
FROM orders
GROUP BY customer;
