"""Functions and frames of Go, by the table that its runtime needs."""
