"""Models of Hugging Face transformers by their config, with their own losses."""
