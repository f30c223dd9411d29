"""The fence around other people's code: what oomproof needs of a framework beyond its documented interface."""
