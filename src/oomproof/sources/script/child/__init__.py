"""What runs in the script's own process: the first file is started by path, with whichever Python the user names."""
