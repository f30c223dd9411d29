"""The user's own training script, as it is: ``oomproof check --on DEVICE -- python train.py --batch-size 16``."""
