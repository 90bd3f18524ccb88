"""A user's tables: from CSV, Parquet, Arrow and frames to typed columns.

`open_table` gives a `Table`, which has named columns of cells. A `Schema` lists the columns a
problem needs, and turns them into arrays; all rows that it cannot read are in one error.
"""
