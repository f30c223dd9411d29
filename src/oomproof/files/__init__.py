"""Files as such: read only where they are files, replaced as a whole or not at all. Imports errors alone.

What a file means is the business of whoever reads it.
"""
