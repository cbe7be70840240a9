"""Behind spillway.checkpoint: the trainer's file, and a folder of torch.distributed.checkpoint."""
