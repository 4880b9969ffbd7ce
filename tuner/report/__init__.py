"""`gensor-tune report`: one self-contained HTML page about the kernels of a database.

contents.py reads the store; split.py and walked.py ask the potential; roofline.py, compared.py, bars.py and tables.py
draw; page.py puts it together. Charts are SVG made here, the page's own style and script are the two files beside.
"""
