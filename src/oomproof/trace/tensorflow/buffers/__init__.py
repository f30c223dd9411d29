"""Which memory each operation takes, hands on and gives back."""
