"""`gensor-tune report`: one self-contained HTML page about the kernels of a database.

contents.py reads the store; split.py and walked.py evaluate the potential; roofline.py, compared.py, bars.py and
tables.py draw; page.py assembles the page. Charts are SVG made here; the page's style and script are the two files in
this folder.
"""
