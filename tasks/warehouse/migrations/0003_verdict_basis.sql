-- what the confidence of a model's verdict was made of
ALTER TABLE query_scores ADD COLUMN verdict_basis VARCHAR;
ALTER TABLE staging.query_scores ADD COLUMN verdict_basis VARCHAR;
