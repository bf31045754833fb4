-- Days of time zones that are not whole hours from UTC: each hour also has the sums of its first one, two and three
-- quarters, so that a part of an hour is read from one row instead of from its runs.

DROP TRIGGER stats_gone;
DROP TABLE stats;

CREATE TABLE stats (
    metric TEXT NOT NULL,
    hour INTEGER NOT NULL,
    worker TEXT NOT NULL,
    root BOOLEAN NOT NULL,
    label TEXT NOT NULL,
    detail TEXT NOT NULL,
    amount INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    unpriced INTEGER NOT NULL,
    amount_1 INTEGER NOT NULL,
    amount_2 INTEGER NOT NULL,
    amount_3 INTEGER NOT NULL,
    tokens_1 INTEGER NOT NULL,
    tokens_2 INTEGER NOT NULL,
    tokens_3 INTEGER NOT NULL,
    unpriced_1 INTEGER NOT NULL,
    unpriced_2 INTEGER NOT NULL,
    unpriced_3 INTEGER NOT NULL,
    PRIMARY KEY (metric, hour, worker, root, label, detail)
) WITHOUT ROWID;

INSERT INTO stats
SELECT
    metric, quarter >> 2, worker, root, label, detail,
    sum(amount), sum(tokens), sum(unpriced),
    sum(amount * (quarter & 3 < 1)), sum(amount * (quarter & 3 < 2)), sum(amount * (quarter & 3 < 3)),
    sum(tokens * (quarter & 3 < 1)), sum(tokens * (quarter & 3 < 2)), sum(tokens * (quarter & 3 < 3)),
    sum(unpriced * (quarter & 3 < 1)), sum(unpriced * (quarter & 3 < 2)), sum(unpriced * (quarter & 3 < 3))
FROM run_stats GROUP BY metric, quarter >> 2, worker, root, label, detail;

CREATE TRIGGER stats_gone AFTER DELETE ON run_stats BEGIN
    UPDATE stats
    SET
        amount = amount - old.amount,
        tokens = tokens - old.tokens,
        unpriced = unpriced - old.unpriced,
        amount_1 = amount_1 - old.amount * (old.quarter & 3 < 1),
        amount_2 = amount_2 - old.amount * (old.quarter & 3 < 2),
        amount_3 = amount_3 - old.amount * (old.quarter & 3 < 3),
        tokens_1 = tokens_1 - old.tokens * (old.quarter & 3 < 1),
        tokens_2 = tokens_2 - old.tokens * (old.quarter & 3 < 2),
        tokens_3 = tokens_3 - old.tokens * (old.quarter & 3 < 3),
        unpriced_1 = unpriced_1 - old.unpriced * (old.quarter & 3 < 1),
        unpriced_2 = unpriced_2 - old.unpriced * (old.quarter & 3 < 2),
        unpriced_3 = unpriced_3 - old.unpriced * (old.quarter & 3 < 3)
    WHERE (metric, hour, worker, root, label, detail)
        = (old.metric, old.quarter >> 2, old.worker, old.root, old.label, old.detail);
    -- Amounts of different quarters may cancel each other out: a correction is negative.
    DELETE FROM stats
    WHERE (metric, hour, worker, root, label, detail)
        = (old.metric, old.quarter >> 2, old.worker, old.root, old.label, old.detail)
        AND (amount, tokens, unpriced) = (0, 0, 0)
        AND (amount_1, amount_2, amount_3) = (0, 0, 0)
        AND (tokens_1, tokens_2, tokens_3) = (0, 0, 0)
        AND (unpriced_1, unpriced_2, unpriced_3) = (0, 0, 0);
END;
