"""Reports as one HTML file that opens offline: ``page.html`` with its style, its script and Plotly inside.

``documents.py`` says what is in them, as plain data; ``script/`` draws it.
"""
