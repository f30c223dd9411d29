"""Jobs that a function in the user's file returns."""
