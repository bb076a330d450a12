-- pages of Great Expectations that a run leaves
ALTER TABLE scoring_runs ADD COLUMN data_docs TEXT;
