"""Reading people's own files: what each array or column is, what is missing, and windows of long recordings.

spec        the settings: `[data.columns]`, `data.missing`, `[data.window]`, `data.kind`
roles       which array or column is the label, the client, the recording, the time or the split, and why
clocks      columns that are a clock or count the rows; times as seconds
tables      the columns of CSV and Parquet files
gaps        missing values: counted by column, then refused, dropped, filled or marked
stretches   readings in order, cut where a recording, a label or the clock breaks off
windows     stretches cut into windows
pairs       X_train and X_test as one array with a split
arrays      named arrays or columns -> a checked Dataset that says what it was made of
"""
