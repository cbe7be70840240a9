"""Text made into the files of tokens and of pairs that spillway-train reads (docs/trainer.md)."""
