"""Programs in Triton, a file per family; importing one imports triton.

A pixel is a row here, its channels the columns: row r of a sample begins r * channels elements after the sample.
"""
