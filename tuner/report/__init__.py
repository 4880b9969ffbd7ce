"""`gensor-tune report`: one self-contained HTML page about the kernels of a database.

contents.py reads the store and splits predicted times; charts.py, walked.py and tables.py draw, by drawing.py; page.py
assembles the page. Charts are SVG made here; the page's style and script are the two files in this folder.
"""
